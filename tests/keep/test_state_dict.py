"""Test the tensors, keys and bytes that `rig.state_dict()` returns, and that calling it changes nothing."""

from __future__ import annotations

import random
import sys

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import tenterhook as th
from tests.keep.conftest import (
    ACTIONS,
    HEADER,
    PLAN,
    Net,
    Run,
    attached,
    copied,
    counters,
    fired,
    fresh,
    header,
    identical,
    raw,
    same,
    sealed,
    through_torch,
)

KINDS = ("ledger", "targets", "tensor", "state", "pending", "partial", "fired", "free", "index", "pending_free",
         "pending_index", "generator")  # fmt: skip

ROW, COLUMN, BYTES = torch.float64, torch.int64, torch.uint8
#: entries of the run between two backwards: the key after "tenterhook/rank0/", dtype and shape
ENTRIES = {
    "tensor/v": (torch.float32, 2),
    "targets/zscore": (BYTES, 121), "ledger/zscore": (COLUMN, 9, 8), "state/zscore/mean": (ROW, 8),
    "state/zscore/var": (ROW, 8), "state/zscore/seen": (ROW, 8),
    "targets/noise": (BYTES, 64), "ledger/noise": (COLUMN, 9, 4), "generator/noise/cpu/0": (BYTES, 5056),
    "targets/drift": (BYTES, 17), "ledger/drift": (COLUMN, 9, 2), "state/drift/calls": (ROW, 2),
    "pending/drift/calls": (ROW, 2), "free/drift/float32/1/last": (torch.float32, 8),
    "index/drift/float32/1/last": (COLUMN, 2, 2), "pending_free/drift/float32/1/last": (torch.float32, 8),
    "pending_index/drift/float32/1/last": (COLUMN, 2, 2),
    "targets/momentum": (BYTES, 21), "ledger/momentum": (COLUMN, 9, 2),
    "free/momentum/float32/1/velocity": (torch.float32, 2),
    "index/momentum/float32/1/velocity": (COLUMN, 1, 2),
    "free/momentum/float32/2/velocity": (torch.float32, 8),
    "index/momentum/float32/2/velocity": (COLUMN, 1, 3),
    "targets/steer": (BYTES, 4), "ledger/steer": (COLUMN, 9, 1),
    "targets/taps": (BYTES, 25), "ledger/taps": (COLUMN, 9, 2), "state/taps/mean": (ROW, 2), "state/taps/var": (ROW, 2),
    "state/taps/seen": (ROW, 2),
    "targets/spike": (BYTES, 11), "ledger/spike": (COLUMN, 9, 1), "state/spike/mean": (ROW, 1),
    "state/spike/var": (ROW, 1), "state/spike/seen": (ROW, 1),
    "targets/after": (BYTES, 23), "ledger/after": (COLUMN, 9, 2),
    "targets/stats": (BYTES, 12), "ledger/stats": (COLUMN, 9, 1), "partial/stats/numel": (ROW, 1, 1),
    "partial/stats/total": (ROW, 1, 1), "partial/stats/norm": (ROW, 1, 1), "partial/stats/abs_max": (ROW, 1, 1),
    "partial/stats/zeros": (ROW, 1, 1), "partial/stats/nonfinite": (ROW, 1, 1), "fired/stats": (BYTES, 1),
}  # fmt: skip


def of(state: dict[str, Tensor], key: str) -> Tensor:
    return state[f"tenterhook/rank0/{key}"]


# -- which tensors ----------------------------------------------------------------------------------------------------


def test_every_kind_of_entry_has_its_key(midway: Run):
    state = midway.rig.state_dict()
    assert next(iter(state)) == HEADER
    found = {key.removeprefix("tenterhook/rank0/"): (t.dtype, *t.shape) for key, t in state.items() if key != HEADER}
    assert found == ENTRIES
    assert {key.partition("/")[0] for key in found} == set(KINDS), "no kind is left out of this test"
    midway.backward(7, 1)
    midway.optimizer.step()
    passing = ("partial", "fired", "pending")
    assert midway.rig.state_dict().keys() == {HEADER} | {
        f"tenterhook/rank0/{key}" for key in ENTRIES if not key.startswith(passing)
    }


def test_only_plain_tensors_on_the_cpu_with_their_own_memory(midway: Run):
    state = midway.rig.state_dict()
    for tensor in state.values():
        assert type(tensor) is Tensor and tensor.layout is torch.strided and not tensor.requires_grad
        assert tensor.device.type == "cpu" and tensor.is_contiguous() and tensor.storage_offset() == 0
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size(), "no more than it shows"
    assert len({t.untyped_storage().data_ptr() for t in state.values()}) == len(state)


def test_what_the_entries_say(midway: Run):
    state = midway.rig.state_dict()
    assert of(state, "tensor/v").tolist() == [0.5, -0.25]
    assert raw(of(state, "targets/taps")) == b"blocks.0:act\0blocks.1:act"
    assert of(state, "state/drift/calls").tolist() == [7.0, 7.0], "one write for each step that ended"
    assert of(state, "pending/drift/calls").tolist() == [8.0, 8.0]
    assert of(state, "pending_index/drift/float32/1/last").tolist() == [[0, 4], [1, 4]]
    assert of(state, "index/momentum/float32/2/velocity").tolist() == [[0, 2, 4]]
    assert of(state, "index/momentum/float32/1/velocity").tolist() == [[1, 2]]
    assert of(state, "partial/stats/numel").tolist() == [[12.0]]
    assert of(state, "fired/stats").tolist() == [1]
    due, fired, changed, failed, rebound, first, last, kind, muted = of(state, "ledger/noise").tolist()
    assert (due, fired, changed) == ([7] * 4, [15] * 4, [15] * 4)
    assert (failed, rebound, first, last) == ([0] * 4, [0] * 4, [0] * 4, [7] * 4)
    assert (kind, muted) == ([0, 1, 1, 2], [-1] * 4)
    assert header(state)["hooks"]["noise"]["kinds"] == ["float32[4, 3]", "float32[4, 4]", "float32[2, 4]"]
    fingerprints = {id: said["fingerprint"] for id, said in header(state)["hooks"].items()}
    own = {id: ACTIONS.get(id).fingerprint for id in ("drift", "momentum")}
    assert fingerprints == {**dict.fromkeys((hook.id for hook in PLAN), None), **own}
    assert header(state)["clock"] == {
        "step": 7,
        "tripped": 6,
        "accumulated": True,
        "forwards": [0, 1],
        "last": [7, 1, True],
        "optimizer": "optimizer",
        "manual": False,
    }


def test_the_bytes_are_those_of_the_format_written_by_hand():
    class Doubled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))
            self.bias = nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            return self.weight.sum() * x + self.bias

    model = Doubled()
    rig = th.attach(model, th.Hook("n", on="**", at="grad", do=ACTIONS.get("count")()), actions=ACTIONS)
    for _ in range(3):
        model(torch.ones(1)).sum().backward()
    said = {
        "torch": torch.__version__.partition("+")[0],
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "ranks": 1,
        "sharded": False,
        "optimizers": [],
        "clock": {"step": 3, "tripped": -1, "accumulated": False, "forwards": [0, 0], "last": [2, 1, True],
                  "optimizer": None, "manual": False},
        "plan": {"tenterhook": 1, "hooks": [{"id": "n", "on": "**", "at": "grad", "do": {"count": {}}}]},
        "hooks": {
            "n": {
                "action": "count", "version": 1, "fingerprint": ACTIONS.get("count").fingerprint, "due": 3,
                "counted": 2, "muted": False, "kinds": ["float32[2]", "float32[1]"], "reasons": [], "skipped": [],
            },
        },
    }  # fmt: skip
    entries = {
        "tenterhook/rank0/targets/n": torch.tensor(list(b"weight\0bias"), dtype=torch.uint8),
        "tenterhook/rank0/ledger/n": torch.tensor(
            [[3, 3], [3, 3], [0, 0], [0, 0], [0, 0], [0, 0], [2, 2], [0, 1], [-1, -1]]
        ),
        "tenterhook/rank0/state/n/n": torch.tensor([3.0, 3.0], dtype=torch.float64),
    }
    same(rig.state_dict(), sealed(said, entries))


def test_a_rig_without_hooks_or_without_targets_has_a_state_too():
    bare = attached(th.Plan([]))
    assert list(bare.rig.state_dict()) == [HEADER]
    taps = attached(th.Hook("t", on="**:act", at="value", do=th.stats()))
    assert list(taps.rig.state_dict()) == [HEADER]
    taps.train([0])
    assert list(taps.rig.state_dict()) == [HEADER, "tenterhook/rank0/targets/t", "tenterhook/rank0/ledger/t"]


def test_a_target_that_is_gone_is_left_out(run: Run):
    run.model.blocks = nn.ModuleList([run.model.blocks[1]])
    run.model.head.register_parameter("bias", None)
    run.train([6])
    assert run.rig.ledger["momentum"].dormant == {"head.bias": "no longer in the model under this name"}
    state = run.rig.state_dict()
    assert raw(of(state, "targets/zscore")).split(b"\0") == [
        b"embed.weight", b"embed.bias", b"blocks.0.lin.weight", b"blocks.0.lin.bias", b"head.weight",
    ]  # fmt: skip
    assert of(state, "ledger/zscore").shape == (9, 5)
    assert of(state, "state/zscore/seen").tolist() == [7.0] * 5
    assert raw(of(state, "targets/drift")) == b"blocks.0"
    assert "tenterhook/rank0/free/momentum/float32/1/velocity" not in state, "of the bias alone"
    assert of(state, "index/momentum/float32/2/velocity").tolist() == [[0, 2, 4]]

    class Less(Net):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([self.blocks[1]])
            self.head.register_parameter("bias", None)

    # The run's optimizer still has the removed parameters, so only the gradients of the next step can be compared.
    model = Less()
    model.load_state_dict(run.model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    twin = Run(model, optimizer, th.restore(model, state, optimizer=optimizer, actions=ACTIONS))
    for one in (run, twin):
        one.train([7])
    for mine, theirs in zip(model.parameters(), run.model.parameters(), strict=True):
        assert identical(mine.grad, theirs.grad)


# -- copies -----------------------------------------------------------------------------------------------------------


def test_what_was_handed_out_is_a_copy(midway: Run):
    state, again = midway.rig.state_dict(), midway.rig.state_dict()
    for tensor in again.values():
        tensor.view(-1).view(torch.uint8).fill_(7)
    same(midway.rig.state_dict(), state)
    before = copied(state)
    midway.backward(7, 1)
    midway.optimizer.step()
    midway.train([8])
    midway.rig._tensors["v"].add_(1)
    same(state, before)
    midway.rig._tensors["v"].sub_(1)


def test_two_calls_give_the_same_bytes_in_the_same_order(midway: Run):
    one, other = midway.rig.state_dict(), midway.rig.state_dict()
    assert list(one) == list(other)
    same(one, other)
    assert safetensors.torch.save(one) == safetensors.torch.save(other)


# -- calling state_dict changes nothing -------------------------------------------------------------------------------


def test_a_run_that_is_saved_at_every_step_is_the_same_run():
    plain, saved = attached(), attached()
    for step in range(8):
        plain.train([step])
        saved.rig.state_dict()
        saved.optimizer.zero_grad()
        saved.backward(step, 0)
        saved.rig.state_dict()
        saved.backward(step, 1)
        saved.rig.state_dict()
        saved.optimizer.step()
    same(saved.state(), plain.state())
    assert counters(saved.rig) == counters(plain.rig)
    assert saved.rig.values("stats") == plain.rig.values("stats")


def test_the_global_generators_are_left_alone(midway: Run):
    before, python = torch.get_rng_state(), random.getstate()
    state = midway.rig.state_dict()
    model, optimizer = fresh(midway)
    now = torch.get_rng_state()
    th.restore(model, state, optimizer=optimizer, actions=ACTIONS)
    midway.rig.load_state_dict(state)
    assert identical(torch.get_rng_state(), now) and random.getstate() == python
    torch.set_rng_state(before)
    midway.rig.state_dict()
    assert identical(torch.get_rng_state(), before)


# -- refusals ---------------------------------------------------------------------------------------------------------


def double(g: Tensor) -> Tensor:
    return g * 2


class Halve:
    def __call__(self, g: Tensor) -> Tensor:
        return g / 2


def test_functions_without_a_name_are_all_listed():
    halve, third = Halve(), lambda g: g / 3
    run = attached(
        [
            th.Hook("named", on="**", at="grad", do=th.scale(2.0)),
            th.Hook("def", on="**", at="grad", do=double),
            th.Hook("object", on="**", at="grad_final", do=halve),
            th.Hook("lambda", on="head", at="output", do=third),
        ]
    )
    with pytest.raises(th.StateError) as error:
        run.rig.state_dict()
    assert str(error.value) == (
        "3 of the plan's functions have no registered name, so the plan cannot be saved\n"
        f"  hook 'def' at grad: the function at {__file__}:{double.__code__.co_firstlineno}\n"
        f"  hook 'object' at grad_final: the function at {__file__}:{Halve.__call__.__code__.co_firstlineno}\n"
        f"  hook 'lambda' at output: the function at {__file__}:{third.__code__.co_firstlineno}\n"
        "  remedy: register each: put @th.action('double', modifies=True) above its def; leave out modifies=True if "
        "it returns nothing"
    )
    assert error.value.hook is None


def test_one_function_without_a_name():
    third = lambda g: g / 3
    run = attached(th.Hook("lambda", on="head", at="output", do=third))
    with pytest.raises(th.StateError) as error:
        run.rig.state_dict()
    assert str(error.value) == (
        "hook 'lambda': 1 of the plan's functions has no registered name, so the plan cannot be saved\n"
        f"  hook 'lambda' at output: the function at {__file__}:{third.__code__.co_firstlineno}\n"
        "  remedy: register it: put @th.action('mine', modifies=True) above its def; leave out modifies=True if it "
        "returns nothing"
    )
    assert error.value.hook == "lambda"


class Named(nn.Module):
    """Define a tap with any name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.lin, self.name = nn.Linear(1, 1), name

    def forward(self, x: Tensor) -> Tensor:
        return th.tap(self.lin(x), self.name, within=self.lin)

    def count(self) -> th.Rig:
        rig = th.attach(self, th.Hook("t", on="**", at="value_grad", do=ACTIONS.get("count")()), actions=ACTIONS)
        self(torch.ones(1, 1)).sum().backward()
        return rig


@pytest.mark.parametrize("name", ["a\0b", "é\n", "\ud800", "\x1b[2J", "x" * 8190])
def test_a_target_of_such_a_name_is_refused(name):
    model = Named(name)
    rig = model.count()
    with pytest.raises(th.StateError) as error:
        rig.state_dict()
    shown = repr(f"lin:{name}")
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    assert str(error.value) == (
        f"hook 't': the name {shown} cannot be saved\n  remedy: use names of 1 to 8192 printable characters"
    )


@pytest.mark.parametrize("name", ["a b", "é", "a/b", "x" * 5000])
def test_any_other_name_of_a_target_is_kept(name):
    model, other = Named(name), Named(name)
    state = through_torch(model.count().state_dict())
    again = th.restore(other, state, actions=ACTIONS)
    assert list(again.ledger["t"]) == [f"lin:{name}"]
    same(again.state_dict(), state)


UNKEEPABLE = {
    "sparse_coo": lambda: torch.eye(2).to_sparse(),
    "sparse_csr": lambda: torch.eye(2).to_sparse_csr(),
    "complex32": lambda: torch.ones(2, 2, dtype=torch.complex32),
    "meta": lambda: torch.ones(2, 2, device="meta"),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR:UserWarning", "ignore:ComplexHalf:UserWarning")
@pytest.mark.parametrize("what", UNKEEPABLE)
def test_state_that_cannot_be_kept_is_refused(what):
    value = UNKEEPABLE[what]()
    run = fired(lambda g, ctx: ctx.state.update(it=value))
    with pytest.raises(th.StateError) as error:
        run.rig.state_dict()
    assert str(error.value).startswith("hook 'h': its state 'it' cannot be saved: it has type Tensor, dtype ")
    assert what in str(error.value)


@pytest.mark.filterwarnings("ignore:Sparse CSR:UserWarning", "ignore:ComplexHalf:UserWarning")
@pytest.mark.parametrize("what", UNKEEPABLE)
def test_a_tensor_parameter_that_cannot_be_kept_is_refused(what):
    model, hook = nn.Linear(2, 2), th.Hook("m", on="weight", at="grad", do=th.mask(by="v"))
    rig = th.attach(model, hook, tensors={"v": UNKEEPABLE[what]()})
    with pytest.raises(th.StateError) as error:
        rig.state_dict()
    assert "v'" in str(error.value) and what in str(error.value)


@pytest.mark.parametrize(
    "given",
    [torch.arange(6.0).reshape(2, 3).t(), torch.ones(1).expand(3, 2), torch.ones(3, 4)[:, ::2], torch.empty(0, 2)],
    ids=["transposed", "expanded", "strided", "empty"],
)
def test_a_tensor_parameter_of_any_strides_is_kept(given):
    model, other = nn.Module(), nn.Module()
    model.weight, other.weight = nn.Parameter(torch.zeros(given.shape)), nn.Parameter(torch.zeros(given.shape))
    hook = th.Hook("m", on="weight", at="grad", do=th.mask(by="v"))
    state = th.attach(model, hook, tensors={"v": given}).state_dict()
    assert safetensors.torch.save(state)
    again = th.restore(other, through_torch(state))
    assert identical(again._tensors["v"], given)
    same(again.state_dict(), state)


@pytest.mark.filterwarnings("ignore:tenterhook muted a hook:RuntimeWarning")
@pytest.mark.parametrize("message", ["caf\udce9", "x" * (1 << 20)], ids=["surrogate", "long"])
def test_what_an_observer_said_when_it_failed_does_not_stop_a_checkpoint(message):
    def fail(g: Tensor, ctx: th.Context) -> None:
        raise ValueError(message)

    run, other = fired(fail), nn.Linear(2, 2)
    again = th.restore(other, run.rig.state_dict(), actions=run.rig._actions)
    for target in ("weight", "bias"):
        assert again.ledger["h"][target].dormant.startswith("muted: its action own raised ValueError: ")


def test_more_entries_than_a_state_may_have_are_refused():
    run = fired(lambda g, ctx: ctx.state.update({f"{i}": g[:1] for i in range(2500)}))
    with pytest.raises(th.StateError) as error:
        run.rig.state_dict()
    count = int(str(error.value).split()[3])
    assert count > 2048
    assert str(error.value) == (
        f"the state has {count} entries, but the limit is 2048\n"
        "  remedy: use fewer hooks, or actions with fewer state names"
    )


@pytest.mark.filterwarnings("ignore:tenterhook muted a hook:RuntimeWarning")
def test_of_very_many_reasons_the_rest_is_kept_without_its_words():
    model, actions = nn.ParameterList(nn.Parameter(torch.ones(1)) for _ in range(40)), th.Registry()

    @th.action("fail", registry=actions, at=["grad"])
    def fail(g: Tensor, ctx: th.Context) -> None:
        raise ValueError(ctx.target)

    rig = th.attach(model, th.Hook("h", on="**", at="grad", do=fail), actions=actions)
    sum(model).backward()
    reasons = header(rig.state_dict())["hooks"]["h"]["reasons"]
    assert len(reasons) == 33 and reasons.count("muted") == 1
    other = nn.ParameterList(nn.Parameter(torch.ones(1)) for _ in range(40))
    again = th.restore(other, rig.state_dict(), actions=actions)
    assert len(again.ledger["h"].dormant) == 40


def test_a_name_that_cannot_be_shown_is_refused():
    model = nn.Linear(1, 1)
    optimizer = {"ma\u200bin": torch.optim.SGD(model.parameters(), lr=0.1)}
    rig = th.attach(model, th.Hook("h", on="**", at="grad", do=th.stats()), optimizer=optimizer)
    with pytest.raises(th.StateError) as error:
        rig.state_dict()
    assert str(error.value) == (
        r"the name 'optimizer.ma\u200bin' cannot be saved"
        "\n  remedy: use up to 256 printable characters"
    )  # fmt: skip


def test_a_tensor_parameter_may_have_a_name_of_its_own():
    actions = th.Registry()

    @th.action("shift", registry=actions, at=["grad"], modifies=True)
    def shift(g: Tensor, *, by: Tensor = "v") -> Tensor:
        return g + by

    model = nn.Linear(1, 1)
    rig = th.attach(model, th.Hook("h", on="**", at="grad", do=shift), actions=actions, tensors={"v": torch.ones(1)})
    assert rig.state_dict()["tenterhook/rank0/tensor/v"].tolist() == [1.0]
