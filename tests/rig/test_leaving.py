"""Checks that after `detach()` the model is as if hooks had never been attached."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import pytest
import torch
from torch import nn

import tenterhook as th
from tenterhook.plan import POINTS


def every_point() -> th.Plan:
    return th.Plan(th.Hook(p, on="**", at=p, do=lambda value: None) for p in POINTS)


def traces(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return everything that a hook could leave behind."""
    found: dict[str, Any] = {"optimizer": {k: _plain(v) for k, v in vars(optimizer).items() if "hook" in k}}
    for name, module in model.named_modules():
        found[name] = {
            k: _plain(v) for k, v in vars(module).items() if k not in ("_parameters", "_modules", "_buffers")
        }
    for name, p in model.named_parameters():
        found[f"{name} hooks"] = (p._backward_hooks, p._post_accumulate_grad_hooks, dict(vars(p)))
    return found


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else value


def test_every_trace_is_gone(mlp, sgd, train):
    train(mlp, sgd)
    before = traces(mlp, sgd)
    rig = th.attach(mlp, every_point(), optimizer=sgd)
    train(mlp, sgd, 2)
    mlp.load_state_dict(mlp.state_dict())
    sgd.load_state_dict(sgd.state_dict())
    assert traces(mlp, sgd) != before
    rig.detach()
    assert traces(mlp, sgd) == before
    rig.detach()


def test_foreign_hooks_stay_and_keep_their_order(mlp, sgd, train):
    calls = []
    mlp.head.register_forward_hook(lambda m, a, o: calls.append("before"))
    mlp.head.weight.register_hook(lambda g: calls.append("weight"))
    rig = th.attach(mlp, [*every_point(), th.Hook("seldom", on="head", at="output", do=lambda t: calls.append("ours"),
                                                   when=th.When(every=2))], optimizer=sgd)  # fmt: skip
    mlp.head.register_forward_hook(lambda m, a, o: calls.append("after"))
    train(mlp, sgd, 3)
    assert calls == [
        "before",
        "ours",
        "after",
        "weight",
        "before",
        "after",
        "weight",
        "before",
        "ours",
        "after",
        "weight",
    ]
    rig.detach()
    assert len(mlp.head._forward_hooks) == 2
    assert len(mlp.head.weight._backward_hooks) == 1
    assert [f.function.split(".")[-1] for f in th.inventory(mlp)] == ["<lambda>"] * 3


def test_a_legacy_hook_can_still_be_registered(mlp, sgd, train):
    with th.attach(mlp, every_point(), optimizer=sgd):
        train(mlp, sgd)
    assert mlp.head._is_full_backward_hook is None
    with pytest.warns(FutureWarning):
        mlp.head.register_backward_hook(lambda m, gi, go: None)
        mlp(torch.ones(1, 4)).sum().backward()


def test_one_bad_hook_among_a_thousand_installs_none(mlp, sgd):
    before = traces(mlp, sgd)
    hooks = [th.Hook(f"h{i}", on="**", at="grad", do=th.scale(1.0)) for i in range(999)]
    with pytest.raises(th.NoMatchError):
        th.attach(mlp, [*hooks, th.Hook("bad", on="nowhere", at="grad", do=th.scale(1.0))], optimizer=sgd)
    assert traces(mlp, sgd) == before


def test_an_error_while_installing_takes_everything_down_again(mlp, sgd, monkeypatch):
    before = traces(mlp, sgd)
    monkeypatch.setattr(mlp.head, "register_forward_hook", None)
    with pytest.raises(TypeError):
        th.attach(mlp, every_point(), optimizer=sgd)
    monkeypatch.undo()
    assert traces(mlp, sgd) == before


def test_cycles_leave_no_objects(mlp, sgd):
    """Run a few cycles; `python benchmarks/cycles.py` runs 10^5."""
    from benchmarks.cycles import net_objects

    assert net_objects(mlp, sgd, cycles=200) <= 0


def test_the_model_is_freed_by_reference_counting_alone():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rig = th.attach(model, every_point(), optimizer=optimizer)
    th.watch(model, optimizer)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    watched = weakref.ref(model)
    gc.disable()
    try:
        del model
        assert watched() is None
    finally:
        gc.enable()
    with pytest.raises(th.AttachedError, match="the model of the rig was freed"):
        rig.add(th.Hook("x", on="**", at="grad", do=th.stats()))


def test_the_model_keeps_its_rig_alive(mlp, sgd, train):
    seen = []
    th.attach(mlp, [th.Hook("h", on="head", at="output", do=lambda t: seen.append(1))], optimizer=sgd)
    gc.collect()
    train(mlp, sgd, 2)
    assert seen == [1, 1]
    assert th.detach(mlp) == 1
    train(mlp, sgd)
    assert seen == [1, 1]


def test_no_graph_is_kept_alive(mlp, sgd):
    graphs = []

    def spy(module: nn.Module, args: Any, output: torch.Tensor) -> None:
        graphs.append(weakref.ref(output))

    mlp.register_forward_hook(spy)
    th.attach(mlp, every_point(), optimizer=sgd)
    th.attach(
        mlp, [th.Hook(f"s{p}", on="**", at=p, do=th.stats()) for p in ("input", "output", "grad_output", "grad_input")]
    )
    for _ in range(3):
        loss = mlp(torch.ones(2, 4)).sum()
        loss.backward()
        del loss
    assert [g() for g in graphs] == [None] * 3


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: torch.optim.swa_utils.AveragedModel(m).module])
def test_copies_are_inert(mlp, sgd, train, copied):
    seen = []
    th.attach(
        mlp,
        [
            th.Hook(p, on=(".", "**"), at=p, do=lambda x: seen.append(1))
            for p in ("input", "output", "grad_output", "grad_input")
        ],
    )
    twin = copied(mlp)
    twin(torch.ones(2, 4)).sum().backward()
    assert not seen
    assert th.detach(twin) == 0
    mlp(torch.ones(2, 4)).sum().backward()
    assert seen


def test_a_pickled_model_is_inert(mlp, tmp_path):
    seen = []
    th.attach(mlp, [th.Hook("h", on=(".", "**"), at="output", do=lambda x: seen.append(1))])
    torch.save(mlp, tmp_path / "m.pt")
    twin = torch.load(tmp_path / "m.pt", weights_only=False)
    twin(torch.ones(2, 4))
    assert not seen
