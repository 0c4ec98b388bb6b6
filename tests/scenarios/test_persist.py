"""Compares plain PyTorch with tenterhook on P1 to P4 and P8: a hook that is saved and loaded by name."""

import importlib
import io
import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tenterhook as th

X = torch.arange(8.0).reshape(4, 2)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))


def run(model: nn.Module, by: float = 1.0) -> None:
    model.zero_grad()
    model(X * by).sum().backward()


def same_gradients(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(p.grad, q.grad) for p, q in zip(one.parameters(), other.parameters()))


def through_torch(saved: Any) -> Any:
    file = io.BytesIO()
    torch.save(saved, file)
    file.seek(0)
    return torch.load(file)


def reloaded(model: nn.Module) -> nn.Sequential:
    """Save the model and load it into a new object, as after a restart."""
    fresh = net()
    fresh.load_state_dict(through_torch(model.state_dict()))
    return fresh


# -- P1: by the parameter's name ---------------------------------------------------------------------------------------


def test_p1_a_tensor_has_no_register_backward_hook() -> None:
    assert not hasattr(torch.Tensor, "register_backward_hook")


def test_p1_a_loaded_model_has_no_hooks_of_the_saved_one() -> None:
    model = net()
    model[0].weight.register_hook(lambda g: g * 2)
    fresh, bare = reloaded(model), net()
    run(fresh)
    run(bare)
    assert same_gradients(fresh, bare)


def test_p1_a_plan_by_name_holds_on_the_loaded_model() -> None:
    plan = th.Plan([th.Hook("double", on="0.weight", at="grad", do=th.scale(2.0))])
    saved = net()
    with th.attach(saved, plan):
        plain, ours = reloaded(saved), reloaded(saved)
    dict(plain.named_parameters())["0.weight"].register_hook(lambda g: g * 2)
    with th.attach(ours, th.Plan.from_json(plan.to_json())) as rig:
        run(plain)
        run(ours)
    assert same_gradients(plain, ours)
    assert rig.ledger["double"]["0.weight"].changed == 1


def test_p1_a_plan_is_the_same_after_its_round_trip() -> None:
    plan = th.Plan([th.Hook("double", on=("0.weight", "2.*"), at="grad", do=th.scale(2.0), when=th.When(every=2))])
    back = th.Plan.from_json(plan.to_json())
    assert (back, back.digest) == (plan, plan.digest)


# -- P2: by the module's type ------------------------------------------------------------------------------------------


def from_file(**hook: str) -> th.Plan:
    return th.Plan.from_json(json.dumps({"tenterhook": 1, "hooks": [{"id": "h", "at": "output", **hook}]}))


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a module that could be imported, but must not be."""
    (tmp_path / "named_in_a_file.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    return "named_in_a_file"


def test_p2_a_type_from_a_file_is_compared_and_never_run() -> None:
    ran: list[str] = []
    text = "ran.append('code from the file') or nn.Linear"
    assert eval(text, {"ran": ran, "nn": nn}) is nn.Linear
    assert ran == ["code from the file"]
    ran.clear()
    with pytest.raises(th.NoMatchError):
        th.attach(net(), from_file(on=f"type:{text}", do="stats"))
    assert ran == []


def test_p2_nothing_is_imported_for_a_type(trap: str) -> None:
    with pytest.raises(SystemExit, match="imported"):
        importlib.import_module(trap)
    with pytest.raises(th.NoMatchError):
        th.attach(net(), from_file(on=f"type:{trap}.Linear", do="stats"))


def test_p2_nothing_is_imported_for_an_action(trap: str) -> None:
    with pytest.raises(th.ActionError, match=rf"the action '{trap}\.act' is not registered"):
        th.attach(net(), from_file(on="0", do=f"{trap}.act"))


def test_p2_your_own_registry_has_the_built_in_actions() -> None:
    with th.attach(net(), from_file(on="0", do="stats"), actions=th.Registry()) as rig:
        assert list(rig.ledger["h"]) == ["0"]


@pytest.mark.parametrize("name", ["Linear", "torch.nn.Linear", "torch.nn.modules.linear.Linear"])
def test_p2_a_type_by_name_is_what_isinstance_gives(name: str) -> None:
    plain, ours = net(), net()
    for module in plain.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(lambda m, args, out: out * 2)
    with th.attach(ours, [th.Hook("double", on=f"type:{name}", at="output", do=th.scale(2.0), expect=2)]):
        assert torch.equal(plain(X), ours(X))


# -- P3: an object that holds the function and the path ----------------------------------------------------------------


def double(grad: Tensor) -> Tensor:
    return grad * 2


@dataclass
class Kept:
    path: str
    fn: Callable[[Tensor], Tensor]


def test_p3_an_object_with_a_function_is_refused_by_torch_load() -> None:
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        through_torch({"hook": Kept("0.weight", double)})
    with pytest.raises((pickle.PicklingError, AttributeError)):
        through_torch({"hook": Kept("0.weight", lambda grad: grad * 2)})


def test_p3_the_state_is_plain_tensors() -> None:
    plain, ours = net(), net()
    with th.attach(ours, [th.Hook("double", on="0.weight", at="grad", do=th.scale(2.0))]) as rig:
        saved = through_torch({"model": ours.state_dict(), "hooks": rig.state_dict()})
    assert {type(value) for value in saved["hooks"].values()} == {Tensor}
    plain[0].weight.register_hook(double)
    fresh = net()
    fresh.load_state_dict(saved["model"])
    with th.restore(fresh, saved["hooks"]):
        run(plain)
        run(fresh)
    assert same_gradients(plain, fresh)


def test_p3_a_function_without_a_name_is_refused_before_anything_is_saved() -> None:
    model = net()
    with th.attach(model, [th.Hook("double", on="0.weight", at="grad", do=double)]) as rig:
        with pytest.raises(th.StateError, match="no registered name, so the plan cannot be saved") as told:
            rig.state_dict()
    assert told.value.hook == "double"
    assert f"{Path(__file__).name}:{double.__code__.co_firstlineno}" in str(told.value)
    assert told.value.remedy == (
        "register it: put @th.action('double', modifies=True) above its def; leave out modifies=True if it returns "
        "nothing"
    )


# -- P4: the module was renamed or moved -------------------------------------------------------------------------------


def named(**modules: nn.Module) -> nn.Sequential:
    model = nn.Sequential()
    for name, module in modules.items():
        model.add_module(name, module)
    return model


def renamed() -> nn.Sequential:
    first, relu, last = net()
    return named(first=first, relu=relu, last=last)


def moved() -> nn.Sequential:
    return named(body=net())


ZSCORE = th.Plan([th.Hook("clip", on="**", at="grad", do=th.clip_zscore(z=0.5, warmup=1))])


def clipped(model: nn.Module) -> th.Rig:
    """Train for three steps, which update the state of the clip."""
    rig = th.attach(model, ZSCORE)
    for step in range(3):
        run(model, step + 1)
    return rig


@pytest.mark.parametrize("make", [renamed, moved])
def test_p4_a_hook_looked_up_by_its_old_name_is_silently_lost(make: Callable[[], nn.Module]) -> None:
    model, bare = make(), make()
    found = dict(model.named_parameters()).get("0.weight")
    if found is not None:
        found.register_hook(double)
    run(model)
    run(bare)
    assert same_gradients(model, bare)


@pytest.mark.parametrize(
    ("make", "rename", "nearest"),
    [(renamed, {"0": "first", "2": "last"}, "first.weight"), (moved, {"*": "body.*"}, "body.0.weight")],
)
def test_p4_a_new_name_is_refused_and_a_rename_carries_the_state(
    make: Callable[[], nn.Module], rename: dict[str, str], nearest: str
) -> None:
    ours, fresh = net(), make()
    state = clipped(ours).state_dict()
    with pytest.raises(th.MismatchError) as told:
        th.restore(fresh, state)
    assert "hook 'clip' on '0.weight': saved, but not on this model" in str(told.value)
    assert f"'{nearest}'" in str(told.value)
    assert len(th.inventory(fresh)) == 0
    with th.restore(fresh, state, rename=rename) as rig:
        run(ours, 4)
        run(fresh, 4)
    assert same_gradients(ours, fresh)
    assert rig.ledger["clip"][nearest].fired == 4


def test_p4_the_rename_that_is_proposed_works() -> None:
    ours, fresh = net(), moved()
    state = clipped(ours).state_dict()
    with th.attach(fresh, ZSCORE) as rig:
        with pytest.raises(th.MismatchError) as told:
            rig.load_state_dict(state)
        assert told.value.remedy == 'pass rename={"*": "body.*"}, or pass strict=False to load what fits'
        assert not rig.load_state_dict(state, rename={"*": "body.*"})
        assert rig.step_count == 3


def test_p4_a_wrapper_does_not_change_names() -> None:
    ours, wrapped = net(), nn.DataParallel(net())
    state = clipped(ours).state_dict()
    with th.restore(wrapped, state):
        run(ours, 4)
        run(wrapped, 4)
    assert same_gradients(ours, wrapped)


# -- P8: the handle ----------------------------------------------------------------------------------------------------


def test_p8_a_saved_handle_restores_nothing() -> None:
    model, bare = net(), net()
    handle = model[0].weight.register_hook(double)
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        through_torch(handle)
    fresh, back = reloaded(model), pickle.loads(pickle.dumps(handle))
    run(fresh)
    run(bare)
    assert same_gradients(fresh, bare)
    back.remove()  # the loaded handle cannot remove the hook: it refers to a dict that is not the model's
    run(model)
    assert torch.equal(model[0].weight.grad, 2 * bare[0].weight.grad)


def test_p8_a_rig_is_saved_by_its_state_and_not_by_itself() -> None:
    ours, plain = net(), net()
    plain[0].weight.register_hook(double)
    with th.attach(ours, [th.Hook("double", on="0.weight", at="grad", do=th.scale(2.0))]) as rig:
        with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
            pickle.dumps(rig)
        state = rig.state_dict()
    fresh = reloaded(ours)
    with th.restore(fresh, state):
        run(fresh)
        run(plain)
    assert same_gradients(fresh, plain)
