"""Check the private dicts in which PyTorch stores hooks. A test fails when torch changes them."""

from __future__ import annotations

import sys
from collections import OrderedDict

import pytest
import torch
from torch import nn

from tenterhook import torch_internals as private
from tests.support.torch_internals.leaves import leaf


def test_swap_tensors_changes_the_implementation_and_kills_hooks_until_they_are_reinstalled():
    p, fired = leaf(), []
    p.register_hook(lambda g: fired.append("grad"))
    p.register_post_accumulate_grad_hook(lambda p: fired.append("accumulated"))
    before = private.implementation(p)
    p.data = torch.zeros(2)
    assert private.implementation(p) == before
    torch.utils.swap_tensors(p, leaf())
    assert private.implementation(p) != before
    p.sum().backward()
    assert fired == []
    private.reinstall_tensor_hooks(p)
    private.reinstall_tensor_hooks(p)
    p.sum().backward()
    assert fired == ["grad", "accumulated"]


def test_empty_hook_dicts_go_back_to_none():
    p = leaf()
    handles = [p.register_hook(lambda g: None), p.register_post_accumulate_grad_hook(lambda p: None)]
    private.drop_empty_tensor_hooks(p)
    assert private.tensor_hooks(p, "_backward_hooks")
    for handle in handles:
        handle.remove()
    assert private.tensor_hooks(p, "_backward_hooks") == OrderedDict()
    private.drop_empty_tensor_hooks(p)
    assert [private.tensor_hooks(p, slot) for slot in private.HOOK_SLOTS] == [None, None]
    p.register_hook(lambda g: None)


def test_a_rearranged_dict_is_the_order_of_firing():
    p, fired = leaf(), []
    first = p.register_hook(lambda g: fired.append(1))
    second = p.register_hook(lambda g: fired.append(2))
    private.put_in_order(private.tensor_hooks(p, "_backward_hooks"), [second.id, first.id])
    p.sum().backward()
    assert fired == [2, 1]
    first.remove()
    p.sum().backward()
    assert fired == [2, 1, 2]


def test_the_slots_are_those_the_register_functions_fill():
    module, optimizer = nn.Linear(1, 1), torch.optim.SGD([leaf()], lr=0.1)
    for owner, slots in ((module, private.MODULE_SLOTS), (optimizer, private.OPTIMIZER_SLOTS)):
        assert {k for k in vars(owner) if k.endswith("_hooks")} >= set(slots)
        for slot, name in slots.items():
            assert not private.hooks_in(owner, slot)
            handle = getattr(owner, name)(lambda *args: None)
            assert list(private.hooks_in(owner, slot)) == [handle.id]
            handle.remove()


def test_a_handle_knows_the_dict_of_its_hook():
    model, w = nn.Linear(1, 1), leaf()
    for handle, hooks in (
        (model.register_forward_hook(print), model._forward_hooks),
        (w.register_hook(print), w._backward_hooks),
        (torch.optim.SGD([w], lr=0.1).register_step_pre_hook(print), None),
    ):
        assert private.registered_in(handle) is hooks
    assert private.count_hooks(model, "register_forward_hook") == 1
    assert private.count_hooks(model, "register_full_backward_hook") == 0
    assert private.count_hooks(w, "register_hook") is None


def test_hooks_on_every_call_and_every_step_are_in_these_dicts():
    model, optimizer, seen = nn.Linear(1, 1), torch.optim.SGD([leaf()], lr=0.1), []
    before, after = private.EVERY_STEP
    undo = [
        private.insert_hook(private.EVERY_CALL, lambda module, args: seen.append("call")),
        private.insert_hook(before, lambda *args: seen.append("before")),
        private.insert_hook(after, lambda *args: seen.append("after")),
    ]
    try:
        model(torch.ones(1, 1))
        optimizer.step()
    finally:
        for take_out in undo:
            take_out()
    assert seen == ["call", "before", "after"]
    model(torch.ones(1, 1))
    optimizer.step()
    assert len(seen) == 3


def test_a_hook_put_into_a_dict_uses_up_no_number():
    model = nn.Linear(1, 1)
    first = model.register_forward_hook(lambda *args: None)
    fired: list[int] = []
    take_out = private.insert_hook(model._forward_hooks, lambda *args: fired.append(1))
    second = model.register_forward_hook(lambda *args: None)
    assert second.id == first.id + 1
    model(torch.ones(1, 1))
    take_out()
    take_out()
    model(torch.ones(1, 1))
    assert fired == [1] and list(model._forward_hooks) == [first.id, second.id]
    assert private.is_before_others(model._forward_hooks, first.id)
    assert not private.is_before_others(model._forward_hooks, second.id)
    second.remove()
    assert private.is_only(model._forward_hooks)


def test_a_hook_is_forgotten_with_what_stands_beside_it():
    model = nn.Linear(1, 1)
    bare = {name: len(value) for name, value in vars(model).items() if "hooks" in name and value is not None}
    handle = model.register_forward_hook(lambda *args, **kwargs: None, with_kwargs=True, always_call=True)
    private.forget_hook(model, "_forward_hooks", handle.id)
    handle = model.register_forward_pre_hook(lambda *args, **kwargs: None, with_kwargs=True)
    private.forget_hook(model, "_forward_pre_hooks", handle.id)
    found = {name: len(value) for name, value in vars(model).items() if "hooks" in name and value is not None}
    assert found == bare


def test_a_module_has_backward_hooks_of_one_kind():
    for register in ("register_backward_hook", "register_full_backward_hook"):
        model = nn.Linear(1, 1)
        getattr(model, register)(lambda *args: None)
        (slot,) = [s for s in private.registered_by(model) if private.hooks_in(model, s)]
        assert (slot, private.registered_by(model)[slot]) == ("_backward_hooks", register)


def test_the_output_of_a_call_with_full_backward_hooks_goes_through_one_function(monkeypatch):
    where, name = private.OUTPUT_ENTRY
    seen, setup = [], getattr(where, name)
    monkeypatch.setattr(where, name, lambda self, *a: (seen.append(self.module), setup(self, *a))[1])
    model = nn.Linear(1, 1)
    model(torch.ones(1, 1))
    model.register_full_backward_hook(lambda *args: None)
    model(torch.ones(1, 1))
    assert seen == [model]


@pytest.mark.parametrize("always_call", [False, True])
def test_the_frame_that_calls_a_forward_hook_has_its_id(always_call):
    found = []

    def note(*args):
        found.append(private.running_hook(sys._getframe(1)))

    model = nn.Linear(1, 1)
    handles = [
        model.register_forward_pre_hook(note),
        model.register_forward_pre_hook(note, with_kwargs=True),
        model.register_forward_hook(note, always_call=always_call),
        model.register_forward_hook(note, with_kwargs=True),
    ]
    model(torch.ones(1))
    assert found == [handle.id for handle in handles]
    note()
    assert found[-1] is None
    named = []
    model.register_forward_hook(lambda *args: named.append(private.call_kwargs(sys._getframe(1))))
    model(input=torch.ones(1))
    assert [set(one) for one in named] == [{"input"}] and private.call_kwargs(sys._getframe()) == {}
    slots = ("_forward_pre_hooks", "_forward_hooks")
    kwargs = [private.gets_kwargs(model, slots[n // 2], handle.id) for n, handle in enumerate(handles)]
    assert kwargs == [False, True, False, True]


def test_the_frame_of_a_hook_that_is_called_after_an_error_has_its_id():
    found = []
    model = nn.Linear(1, 1)

    def note(*args):
        found.append(private.running_hook(sys._getframe(1)))

    handle = model.register_forward_hook(note, always_call=True)
    with pytest.raises(RuntimeError):
        model(torch.ones(7))
    assert found == [handle.id]


def test_the_depth_of_steps_counts_calls_of_one_optimizer():
    class Twice(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    found: list[int] = []
    parameter = nn.Parameter(torch.ones(1))
    torch.optim.SGD([parameter], lr=0.1)  # makes torch wrap the method of the base class, too
    optimizer = Twice([parameter], lr=0.1)
    optimizer.register_step_post_hook(lambda *_: found.append(private.step_depth(sys._getframe())))
    optimizer.step()
    assert found == [2, 1]
    assert private.step_depth(sys._getframe()) == 0


def test_the_private_functions_register_hooks_on_state_dicts():
    found = []
    model = nn.Sequential(nn.Linear(1, 1))
    save, load = (getattr(model[0], name) for name in private.STATE_REGISTRARS)
    save(lambda module, state, prefix, metadata: found.append(prefix))
    load(lambda state, prefix, *rest: found.append(prefix))
    model.load_state_dict(model.state_dict())
    assert found == ["0.", "0."]


def test_a_hook_on_several_tensors_has_a_handle_for_each():
    tensors = [torch.ones(1, requires_grad=True) for _ in range(2)]
    handle = torch.autograd.graph.register_multi_grad_hook(tensors, lambda grads: None)
    first = private.first_handle(handle)
    assert first.id in private.registered_in(first)
    plain = tensors[0].register_hook(lambda grad: None)
    assert private.first_handle(plain) is plain


def test_a_hook_that_is_registered_first_is_first_in_both_orders_of_the_dict():
    module, called = nn.Linear(2, 2), []
    module.register_forward_pre_hook(lambda module, args: called.append("second"))
    first = private.register_first(module, lambda module, args, kwargs: called.append("first"), with_kwargs=True)
    hooks = module._forward_pre_hooks
    assert next(iter(hooks)) == first.id
    assert list(dict.keys(hooks)) == list(hooks)  # dynamo of torch 2.10 and 2.11 takes them for the same
    module(torch.ones(2))
    first.remove()
    module(torch.ones(2))
    assert called == ["first", "second", "second"]
