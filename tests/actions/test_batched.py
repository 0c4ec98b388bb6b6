"""Measuring many tensors at once gives the same numbers as measuring each tensor alone, for all sizes and dtypes."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import tenterhook as th
from tenterhook.actions import batched, histogram, spike, stats, watch_nonfinite
from tenterhook.actions.batched import PACK_ELEMENTS, READ_IN_PLACE_FROM, BatchMeasure, TensorSpec
from tenterhook.actions.row_measures import ROW_WIDTH

SIZES = (0, 1, 7, 1023, 1024, 1025, 5000)


def by_hand(x: Tensor) -> dict[str, float]:
    """Compute the statistics from their definitions, in double precision."""
    d = x.double()
    return {
        "numel": d.numel(),
        "total": float(d.sum()),
        "norm": float(d.square().sum().sqrt()),
        "abs_max": float(d.abs().max()) if d.numel() else 0.0,
        "zeros": int((d == 0).sum()),
        "nonfinite": int((~torch.isfinite(d)).sum()),
    }


def bins_by_hand(x: Tensor) -> list[int]:
    counts = [0] * 64
    for value in x.flatten().tolist():
        if math.isfinite(value):
            exponent = math.frexp(value)[1] - 1 if value else -40
            counts[min(max(exponent + 40, 0), 63)] += 1
    return counts


def agree(found: float, wanted: float, dtype: torch.dtype) -> bool:
    if math.isnan(wanted):
        return math.isnan(found)
    return found == wanted or math.isclose(found, wanted, rel_tol=1e-12 if dtype == torch.float64 else 2e-6)


def check(tensors: list[Tensor], measure: BatchMeasure) -> None:
    found = measure(tensors)
    for slot, x in enumerate(tensors):
        wanted = by_hand(x)
        scale = max(wanted["norm"] * math.sqrt(max(x.numel(), 1)), 1e-30)
        for name, column in found.items():
            number = float(column[slot])
            if name == "total" and math.isfinite(wanted["total"]):
                # Elements of both signs cancel, so the error is compared with the size of the elements.
                assert abs(number - wanted["total"]) <= scale * (1e-12 if x.dtype == torch.float64 else 1e-6)
            else:
                assert agree(number, wanted[name], x.dtype), (slot, name, number, wanted[name])


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.sampled_from(SIZES), min_size=1, max_size=12),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16]),
    seed=st.integers(0, 99),
    planted=st.sampled_from([None, math.nan, math.inf, -math.inf, 0.0]),
)
def test_statistics_match_their_definitions(sizes: list[int], dtype: torch.dtype, seed: int, planted: float | None):
    torch.manual_seed(seed)
    tensors = [(torch.randn(n) * 10 ** torch.randn(())).to(dtype) for n in sizes]
    if planted is not None and sizes[-1]:
        tensors[-1][sizes[-1] // 2] = planted
    check(tensors, stats.batched([TensorSpec.of(t) for t in tensors]))


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batched, "COMPILE_FROM", 0)


@pytest.mark.slice(3)
@pytest.mark.programs
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_compiled_kernel_gives_the_same(compiling: None, dtype: torch.dtype):
    torch.manual_seed(0)
    tensors = [torch.randn(n).to(dtype) for n in (*SIZES, READ_IN_PLACE_FROM + 5, READ_IN_PLACE_FROM * 2)]
    tensors[2][3], tensors[5][7], tensors[-1][-1], tensors[-2][:9] = math.inf, math.nan, -math.inf, 0.0
    measure = stats.batched([TensorSpec.of(t) for t in tensors])
    assert measure.engine == "compiled"
    check(tensors, measure)


def test_large_tensors_are_read_in_place_and_small_ones_in_several_packs():
    torch.manual_seed(0)
    sizes = [
        READ_IN_PLACE_FROM,
        READ_IN_PLACE_FROM + 1,
        *[READ_IN_PLACE_FROM - 1] * (PACK_ELEMENTS // READ_IN_PLACE_FROM + 1),
        3,
    ]
    tensors = [torch.randn(n) for n in sizes]
    measure = stats.batched([TensorSpec.of(t) for t in tensors])
    for _ in range(2):  # the second pass reuses the buffer, which holds old numbers
        check(tensors, measure)
        tensors = [t * 2 for t in tensors]


@pytest.mark.parametrize("size", [ROW_WIDTH, 64], ids=["no padding", "padding"])
def test_a_buffer_used_for_several_packs_mixes_no_numbers(size: int):
    tensors = [torch.full((size,), float(i % 7 + 1)) for i in range(2 * PACK_ELEMENTS // ROW_WIDTH)]
    measure = stats.batched([TensorSpec.of(t) for t in tensors])
    check(tensors, measure)
    check([t + 1 for t in tensors], measure)


def test_the_order_of_elements_in_memory_does_not_matter():
    torch.manual_seed(0)
    small, large = torch.randn(8, 4, 3, 3), torch.randn(64, 64, 9, 9)
    tensors = [small.to(memory_format=torch.channels_last), large.permute(1, 0, 2, 3), small[:, ::2]]
    check(tensors, stats.batched([TensorSpec.of(t) for t in tensors]))


def test_a_missing_tensor_does_not_affect_the_others():
    torch.manual_seed(0)
    tensors = [torch.randn(300), torch.full((300,), math.nan), torch.randn(READ_IN_PLACE_FROM)]
    measure = stats.batched([TensorSpec.of(t) for t in tensors])
    measure(tensors)
    found = measure([tensors[0], None, tensors[2]])
    assert agree(float(found["norm"][0]), by_hand(tensors[0])["norm"], torch.float32)
    assert agree(float(found["norm"][2]), by_hand(tensors[2])["norm"], torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("compiled", [False, True])
def test_histograms_match_their_definition(dtype: torch.dtype, compiled: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(batched, "COMPILE_FROM", 0 if compiled else 2**60)
    torch.manual_seed(0)
    tensors = [(torch.randn(n) * 10 ** (4 * torch.randn(n))).to(dtype) for n in (1, 7, 1500, READ_IN_PLACE_FROM + 3)]
    tensors[2][:5] = torch.tensor([0.0, math.inf, math.nan, 2.0**30, 2.0**-60])
    tensors[1][:3] = torch.tensor([1.0, 0.99999994, -2.0])
    found = histogram.batched([TensorSpec.of(t) for t in tensors])(tensors)["bins"]
    assert [row.tolist() for row in found] == [bins_by_hand(t) for t in tensors]
    assert histogram.measure(tensors[2])["bins"].tolist() == bins_by_hand(tensors[2])


def test_norms_and_counts_of_nonfinite_elements():
    tensors = [
        torch.tensor([3.0, 4.0]),
        torch.tensor([1.0], dtype=torch.bfloat16),
        torch.tensor([[math.nan, math.inf]]),
    ]
    specs = [TensorSpec.of(t) for t in tensors]
    assert spike.batched(specs)(tensors)["norm"][:2].tolist() == [5.0, 1.0]
    assert spike.batched(specs)([None, tensors[1], None])["norm"][1] == 1.0
    assert watch_nonfinite.batched(specs)(tensors)["nonfinite"].tolist() == [0.0, 0.0, 2.0]


def test_without_a_compiler_the_measure_is_eager_and_reports_that(compiling: None, monkeypatch: pytest.MonkeyPatch):
    def no_compiler(*args: object, **kwargs: object) -> None:
        raise RuntimeError("no C++ compiler")

    monkeypatch.setattr(torch, "compile", lambda *args, **kwargs: no_compiler)
    x = torch.randn(ROW_WIDTH * 3)
    measure = stats.batched([TensorSpec.of(x)])
    assert measure.engine == "eager (no compiled kernel: RuntimeError)"
    check([x], measure)


@pytest.mark.parametrize("at", ["grad_final", "update"])
def test_a_rig_gives_the_same_numbers_together_and_one_by_one(at: str, monkeypatch: pytest.MonkeyPatch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 40), nn.ReLU(), nn.Linear(40, 3), nn.Linear(3, 3))
    x, plan = torch.randn(4, 5), [th.Hook(n, on="**", at=at, do=do) for n, do in
                                  (("s", th.stats()), ("h", th.histogram()), ("k", th.spike()))]  # fmt: skip

    def run(*, one_by_one: bool) -> list[dict[str, dict[str, object]]]:
        found = []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        with th.attach(model, plan, optimizer=optimizer) as rig:
            for live in rig._installer.hooks.values():
                assert rig.ledger[live.hook.id].measured.startswith("together, ")
                if one_by_one:
                    live.batch = None
                    assert rig.ledger[live.hook.id].measured == "one by one"
            for last in (2, 3):  # in the first step the last layer gets no gradient
                optimizer.zero_grad()
                model[: last + 1](x).square().sum().backward()
                optimizer.step()
                found += [rig.values("s"), rig.vectors("h"), rig.values("k")]
        return found

    together_, apart = run(one_by_one=False), run(one_by_one=True)
    for a, b in zip(together_, apart, strict=True):
        assert a.keys() == b.keys()
        for target, row in a.items():
            for name, number in row.items():
                assert number == pytest.approx(b[target][name], rel=1e-5, abs=1e-9), (target, name)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 4, bias=False), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x))


@pytest.mark.parametrize("at", ["grad_final", "update"])
@pytest.mark.parametrize("change", ["bias", "wrap", "shape", "dtype"])
def test_a_changed_model_is_measured_with_its_new_shapes(at: str, change: str):
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    rig = th.attach(model, [th.Hook("s", on="**", at=at, do=th.stats())], optimizer=optimizer)
    x = torch.randn(5, 3)
    for turn in range(2):
        before = {n: p.detach().clone() for n, p in model.named_parameters()}
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
        wanted = {n: float((p.grad if at == "grad_final" else p.detach() - before[n]).double().norm())
                  for n, p in model.named_parameters() if p.grad is not None}  # fmt: skip
        assert {n: row["norm"] for n, row in rig.values("s").items()} == pytest.approx(wanted, rel=1e-5)
        if turn:
            break
        if change == "bias":
            model.a = nn.Linear(3, 4)
        elif change == "wrap":
            model.a = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 4))
        elif change == "shape":
            model.a.weight.data, model.b.weight.data = torch.randn(6, 3), torch.randn(2, 6)
        else:
            model.double()
            x = x.double()
        optimizer.param_groups[0]["params"] = list(model.parameters())
        optimizer.zero_grad()


def test_several_measurements_in_a_step_are_all_counted():
    torch.manual_seed(0)
    model = nn.Linear(3, 1, bias=False)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    rig = th.attach(model, [th.Hook("s", on="weight", at="grad_final", do=th.stats())], optimizer=optimizer)
    for _ in range(3):
        seen: list[Tensor] = []

        def closure(seen: list[Tensor] = seen) -> Tensor:
            optimizer.zero_grad()
            loss = (model(torch.eye(3)) - 1).square().sum()
            loss.backward()
            seen.append(model.weight.grad.clone())
            return loss

        optimizer.step(closure)
        every = torch.stack(seen).double()
        assert rig.values("s")["weight"]["mean"] == pytest.approx(float(every.mean()), rel=1e-5)
        assert rig.values("s")["weight"]["rms"] == pytest.approx(float(every.square().mean().sqrt()), rel=1e-5)
