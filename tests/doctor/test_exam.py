"""Test that hooks run the same during an exam, and that everything is restored when the exam ends."""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import io
import runpy
import sys
import threading
import warnings
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as module_module
from torch.optim import Optimizer
from torch.optim import optimizer as optimizer_module
from torch.utils.checkpoint import checkpoint
from torch.utils.hooks import RemovableHandle

import tenterhook as th
from tenterhook import torch_internals as private
from tenterhook.doctor.observe.hook_kinds import WATCHED
from tenterhook.doctor.patch.process_hooks import GLOBAL
from tenterhook.doctor.patch.proxy import HookProxy

PATCHED: list[tuple[Any, str]] = [
    *((owner, name) for owner, names in (*WATCHED.items(), *GLOBAL.items()) for name in names),
    private.ENGINE_ENTRY, private.CLIP_ENTRY, private.FUNCTIONAL_ENTRY, private.OUTPUT_ENTRY,
    (torch.amp.GradScaler, "scale"), (torch.amp.GradScaler, "step"),
    (torch.utils.checkpoint, "check_backward_validity"), (RemovableHandle, "remove"),
    (RemovableHandle, "__setstate__"), (warnings, "showwarning"), (th.Rig, "__init__"),
    (nn.Module, "__init__"), (nn.Module, "__setstate__"),
    (torch.optim.lr_scheduler.LRScheduler, "__init__"), (torch.fx.Tracer, "trace"),
]  # fmt: skip


def surroundings() -> list[Any]:
    """List everything in PyTorch that an exam changes."""
    return [vars(owner).get(name) for owner, name in PATCHED]


def global_hooks() -> set[int]:
    """Return the ids of all hooks that apply to every module or optimizer."""
    hooks = [optimizer_module._global_optimizer_pre_hooks, optimizer_module._global_optimizer_post_hooks,
             module_module._global_forward_hooks, module_module._global_forward_pre_hooks]  # fmt: skip
    return {number for one in hooks for number in one}


@pytest.fixture
def untouched() -> Any:
    before, hooks = surroundings(), global_hooks()
    yield
    assert [a is b or a == b for a, b in zip(surroundings(), before, strict=True)] == [True] * len(before)
    assert global_hooks() <= hooks  # a rig of an earlier test may be freed meanwhile


def halve(grad: Tensor) -> Tensor:
    return grad * 0.5


def hooked(model: nn.Sequential, optimizer: Optimizer) -> list[RemovableHandle]:
    first, last = model[0], model[-1]
    return [
        first.weight.register_hook(halve),
        first.bias.register_post_accumulate_grad_hook(lambda p: None),
        first.register_forward_pre_hook(lambda m, args: None),
        first.register_forward_hook(lambda m, args, out: out * 1.5),
        last.register_full_backward_pre_hook(lambda m, grads: None),
        last.register_full_backward_hook(lambda m, gi, go: None),
        last.register_state_dict_pre_hook(lambda m, prefix, keep: None),
        last.register_state_dict_post_hook(lambda m, sd, prefix, meta: None),
        last.register_load_state_dict_pre_hook(lambda *args: None),
        last.register_load_state_dict_post_hook(lambda m, keys: None),
        optimizer.register_step_pre_hook(lambda o, args, kwargs: None),
        optimizer.register_step_post_hook(lambda o, args, kwargs: None),
        optimizer.register_state_dict_post_hook(lambda o, sd: None),
    ]


def train() -> tuple[nn.Sequential, Optimizer, list[RemovableHandle]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    handles = hooked(model, optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(5, 3)).square().sum().backward()
        optimizer.step()
    model.load_state_dict(model.state_dict())
    optimizer.state_dict()
    return model, optimizer, handles


def all_hooks(model: nn.Module, optimizer: Optimizer) -> list[Any]:
    found = [fn for m in model.modules() for slot in private.MODULE_SLOTS for fn in private.hooks_in(m, slot).values()]
    for p in model.parameters():
        for slot in private.HOOK_SLOTS:
            found += (private.tensor_hooks(p, slot) or {}).values()
    return found + [fn for slot in private.OPTIMIZER_SLOTS for fn in private.hooks_in(optimizer, slot).values()]


def test_every_kind_of_hook_is_watched_and_given_back(untouched: None):
    bare, _, _ = train()
    with th.examine() as exam:
        model, optimizer, handles = train()
        stand_ins = [fn for fn in all_hooks(model, optimizer) if type(getattr(fn, "hook", fn)) is HookProxy]
    assert len(exam.hooks) == len(handles) == 13
    assert [h.fired > 0 for h in exam.hooks] == [True] * 13
    assert not stand_ins
    left = all_hooks(model, optimizer)
    assert len(left) == 13
    assert not any(type(getattr(fn, "hook", fn)) is HookProxy for fn in left)
    assert list(private.tensor_hooks(model[0].weight, "_backward_hooks").values()) == [halve]
    assert all(torch.equal(a, b) for a, b in zip(bare.parameters(), model.parameters(), strict=True))
    for handle in handles:
        handle.remove()
    assert all_hooks(model, optimizer) == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_everything_is_restored_however_it_ends(error: type[BaseException], untouched: None):
    model = nn.Linear(2, 1)
    with pytest.raises(error), th.examine():
        model.weight.register_hook(halve)
        raise error
    assert list(private.tensor_hooks(model.weight, "_backward_hooks").values()) == [halve]
    assert all_hooks(model, torch.optim.SGD(model.parameters(), lr=0.1)) == [halve]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_everything_is_restored_if_a_hook_raises(error: type[BaseException], untouched: None):
    def fail(grad: Tensor) -> None:
        raise error("broken")

    model = nn.Linear(2, 1)
    with pytest.raises(error), th.examine() as exam:
        model.weight.register_hook(fail)
        model(torch.ones(1, 2)).sum().backward()
    assert exam.findings.codes == ["TH507"]
    assert list(private.tensor_hooks(model.weight, "_backward_hooks").values()) == [fail]


def test_if_it_cannot_be_opened_everything_is_restored(monkeypatch: pytest.MonkeyPatch, untouched: None):
    def broken(self: Any, model: nn.Module) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(th.Exam, "_adopt", broken)
    model = nn.Linear(1, 1)
    with pytest.raises(RuntimeError, match="no"):
        th.examine(model).__enter__()


def test_hooks_that_are_there_already_are_watched_too(untouched: None):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    model[0].weight.register_hook(halve)
    model[1].register_forward_hook(lambda m, args, out: None)
    with th.examine(model) as exam:
        model(torch.ones(1, 2)).sum().backward()
    assert [(h.kind, h.fired) for h in exam.hooks] == [("register_forward_hook", 1), ("register_hook", 1)]
    assert all(h.caller.file == __file__ for h in exam.hooks)
    assert list(private.tensor_hooks(model[0].weight, "_backward_hooks").values()) == [halve]


def test_the_record_of_each_hook(untouched: None):
    with th.examine() as exam:
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        kept, gone = model.weight.register_hook(halve), model.bias.register_hook(lambda grad: None)
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        gone.remove()
    first, second = exam.hooks
    assert (first.function, first.owner.name, first.fired, first.returned, first.changed, first.reached) == (
        "halve", "weight", 2, 2, 2, 2)  # fmt: skip
    assert (second.fired, second.returned, second.changed, second.removed is not None) == (2, 0, 0, True)
    assert first.caller.place.startswith(__file__)
    rows = str(exam).splitlines()
    assert rows[1].split("  ")[0] == "hook"
    assert rows[3].endswith("registered") and rows[4].endswith("removed")
    kept.remove()


def test_copies_and_pickles_carry_the_function_itself(untouched: None):
    with th.examine():
        model = nn.Linear(2, 1)
        model.register_forward_hook(observe)
        copied = copy.deepcopy(model)
        buffer = io.BytesIO()
        torch.save(model, buffer)
    assert list(copied._forward_hooks.values()) == [observe]
    assert not isinstance(next(iter(copied._forward_hooks.values())), HookProxy)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=False)
    assert [type(fn) for fn in loaded._forward_hooks.values()] == [type(observe)]


def observe(module: nn.Module, args: Any, out: Any) -> None:
    pass


def test_an_exam_keeps_nothing_alive(untouched: None):
    with th.examine() as exam:
        model = nn.Linear(2, 1)
        payload = torch.zeros(10)
        ref = __import__("weakref").ref(payload)
        model.weight.register_hook(lambda grad, payload=payload: None).remove()
        del payload
        gc.collect()
        assert ref() is None
    assert len(exam.hooks) == 1


def test_one_after_the_other_and_one_inside_the_other(untouched: None):
    with th.examine() as outer:
        model = nn.Linear(2, 1)
        with th.examine() as inner:
            model.weight.register_hook(halve)
            model(torch.ones(1, 2)).sum().backward()
        model(torch.ones(1, 2)).sum().backward()
    assert [h.fired for h in inner.hooks] == [1]
    assert list(private.tensor_hooks(model.weight, "_backward_hooks").values()) == [halve]
    assert [h.fired for h in outer.hooks] == [2]


def test_a_warning_is_still_shown(untouched: None):
    with warnings.catch_warnings(record=True) as shown, th.examine():
        warnings.simplefilter("always")
        warnings.warn("mind the gap", UserWarning, stacklevel=1)
    assert [str(w.message) for w in shown] == ["mind the gap"]


def test_the_rigs_of_a_program_are_checked_too(untouched: None):
    with th.examine() as exam:
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rig = th.attach(model, th.Hook("never", on="0", at="output", do=th.stats()), optimizer=optimizer)
        model[1](model[0].forward(torch.ones(1, 2))).sum().backward()
        optimizer.step()
    assert [(f.code, f.hook, f.target, f.point) for f in exam.findings] == [("TH207", "never", "0", "output")]
    assert exam.findings[0].place is not None and exam.findings[0].place.startswith(__file__)
    assert rig.step_count == 1
    rig.detach()


def test_nothing_is_found_in_nothing_but_that():
    with contextlib.suppress(AssertionError), th.examine() as exam:
        pass
    assert exam.findings.codes == ["TH109"]


class Toggle:
    on = True

    def __call__(self, module: nn.Module, args: Any) -> None: ...


def test_a_program_finds_its_own_object_among_the_hooks(untouched: None):
    layer, toggle = nn.Linear(2, 2), Toggle()
    with th.examine():
        layer.register_forward_pre_hook(toggle)
        (found,) = [hook for hook in layer._forward_pre_hooks.values() if isinstance(hook, Toggle)]
        found.on = False
    assert toggle.on is False
    assert list(layer._forward_pre_hooks.values()) == [toggle]


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
def test_what_cannot_be_looked_at_is_let_pass(untouched: None):
    with th.examine():
        meta = nn.Linear(3, 3, device="meta")
        meta.weight.register_hook(lambda grad: grad * 2)
        meta(torch.ones(1, 3, device="meta")).sum().backward()
        z = torch.ones(2, dtype=torch.cfloat, requires_grad=True)
        z.register_hook(lambda grad: grad * 2)
        z.abs().sum().backward()
        scripted = torch.jit.script(nn.Linear(2, 2))
        nn.Linear(2, 2).register_forward_hook(observe)
    assert scripted is not None and z.grad is not None


def test_filters_that_the_program_sets_stay(untouched: None):
    with warnings.catch_warnings():
        with th.examine():
            warnings.filterwarnings("ignore", message="of the program")
        assert any(f[1] is not None and f[1].pattern == "of the program" for f in warnings.filters)
        assert not any(f[1] is not None and "not a leaf" in f[1].pattern for f in warnings.filters)


class Doubling:
    def __call__(self, module: nn.Module, args: Any, out: Tensor) -> Tensor:
        return out * 2


def test_a_whole_model_is_saved_as_without_an_exam(untouched: None):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    saved = io.BytesIO()
    with th.examine():
        model[0].register_forward_hook(Doubling())
        model[0].register_full_backward_hook(functools.partial(print, end=""))
        model[1].register_full_backward_pre_hook(print)
        model[1].weight.requires_grad_().register_hook(halve)
        torch.save([model, halve], saved)
    assert b"tenterhook" not in saved.getvalue()
    saved.seek(0)
    loaded, fn = torch.load(saved, weights_only=False)
    assert fn is halve
    assert torch.equal(loaded(torch.ones(1, 2)), model(torch.ones(1, 2)))


def test_no_module_gets_a_hook_that_the_program_did_not_put_on(untouched: None):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    with th.examine(layer):
        handles = [layer.linear1.weight.register_hook(halve), layer.register_full_backward_hook(lambda m, gi, go: None)]
        layer(torch.randn(2, 3, 8, requires_grad=True)).sum().backward()
        removed = layer.register_forward_hook(Doubling())
        layer(torch.randn(2, 3, 8))
        removed.remove()
        slots = ("_forward_hooks", "_forward_pre_hooks")
        assert not any(getattr(module, slot) for module in layer.modules() for slot in slots)
    assert len(handles) == 2


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize(("evaluating", "removing", "found"), [
    (False, "before", ["TH509"]), (False, "after", []), (True, "before", []), (True, "after", []),
])  # fmt: skip
def test_removed_before_a_checkpoint_runs_again(reentrant: bool, evaluating: bool, removing: str, found: list[str]):
    model, x = nn.Sequential(nn.Linear(2, 2), nn.Tanh()), torch.ones(1, 2, requires_grad=True)
    with th.examine() as exam:
        loss = model(x).sum() if evaluating else None
        handle = model[0].register_forward_hook(Doubling())
        with torch.set_grad_enabled(not evaluating):
            out = checkpoint(model, x, use_reentrant=reentrant)
        if removing == "before":
            handle.remove()
        (out.sum() if loss is None else loss).backward()
        handle.remove()
    assert [f.code for f in exam.findings.grave] == found


def test_threads_train_side_by_side(untouched: None):
    errors: list[BaseException] = []
    turns = sys.getswitchinterval()

    def train() -> None:
        try:
            for _ in range(4):
                model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(8)))
                optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
                for parameter in model.parameters():
                    parameter.register_hook(lambda grad: grad.clamp(-1, 1))
                for _ in range(4):
                    optimizer.zero_grad()
                    model(torch.ones(2, 4)).sum().backward()
                    optimizer.step()
        except BaseException as error:
            errors.append(error)

    sys.setswitchinterval(1e-6)
    try:
        with th.examine() as exam:
            threads = [threading.Thread(target=train) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(turns)
    assert errors == []
    assert {h.fired for h in exam.hooks} == {4}
    assert not exam.findings.grave


def test_a_function_that_fails_does_not_keep_its_objects():
    kept = []

    def fails():
        model = nn.Linear(2, 2)
        model.register_forward_hook(lambda module, args, output: None)
        kept.append(weakref.ref(model))
        raise ValueError

    with th.examine():
        with contextlib.suppress(ValueError):
            fails()
        gc.collect()
        assert kept[0]() is None


def test_a_loop_that_registers_hooks_after_a_function_returned_is_not_reported(tmp_path, monkeypatch):
    script = tmp_path / "program.py"
    script.write_text(
        "import torch\n"
        "from torch import nn\n"
        "def first(model):\n"
        "    model[0].register_forward_hook(lambda m, a, o: None)\n"
        "    model(torch.ones(1, 2))\n"
        "model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())\n"
        "first(model)\n"
        "for name, m in model.named_modules():\n"
        "    if name == '1':\n"
        "        m.register_forward_hook(lambda m, a, o: None)\n"
        "model(torch.ones(1, 2))\n"
    )
    monkeypatch.setattr("sys.argv", [str(script)])
    with th.examine() as exam:
        runpy.run_path(str(script))
    assert exam.findings.codes == []
