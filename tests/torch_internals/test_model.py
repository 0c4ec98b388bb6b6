"""Check the private attributes of modules and optimizers. A test fails when torch changes them."""

from __future__ import annotations

import threading

import torch
from torch import nn

from tenterhook import torch_internals as private
from tests.support.torch_internals.leaves import leaf


def test_a_scaler_leaves_its_factor_on_a_fused_optimizer():
    p, seen = leaf(), []
    optimizer = torch.optim.Adam([p], fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    optimizer.register_step_pre_hook(
        lambda o, a, k: seen.append((private.pending_scale(o).item(), private.found_inf(o).item()))
    )
    scaler.scale(p.sum()).backward()
    scaler.step(optimizer)
    assert seen == [(8.0, 0.0)]
    assert private.pending_scale(optimizer) is None and private.found_inf(optimizer) is None


def test_clipping_goes_through_one_function_however_it_was_imported(monkeypatch):
    from torch.nn.utils import clip_grad_norm_

    where, name = private.CLIP_ENTRY
    called, clip = [], getattr(where, name)
    monkeypatch.setattr(
        where, name, lambda p, most, total, *a, **k: (called.append((len(p), most)), clip(p, most, total, *a, **k))
    )
    w = leaf()
    (w * 2).sum().backward()
    clip_grad_norm_([w], 1.0)
    assert called == [(1, 1.0)]


def test_functional_calls_go_through_one_function(monkeypatch):
    where, name = private.FUNCTIONAL_ENTRY
    called, call = [], getattr(where, name)
    monkeypatch.setattr(where, name, lambda module, *a, **k: (called.append(module), call(module, *a, **k))[1])
    model = nn.Linear(1, 1)
    torch.func.functional_call(model, dict(model.named_parameters()), torch.ones(1, 1))
    assert called == [model]


def test_children_and_parameters_are_in_these_dicts():
    model = nn.Sequential(nn.Linear(1, 1, bias=False))
    assert private.child_modules(model) == {"0": model[0]}
    assert dict(private.own_parameters(model[0])) == {"weight": model[0].weight, "bias": None}
    model[0].weight = nn.Parameter(torch.zeros(1, 1))
    assert private.own_parameters(model[0])["weight"] is model[0].weight


def test_a_cleared_scale_is_not_divided_by():
    p = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([p], lr=1.0, fused=True)
    p.grad = torch.full((2,), 8.0)
    optimizer.grad_scale, optimizer.found_inf = torch.tensor(8.0), torch.tensor(0.0)
    assert private.pending_scale(optimizer) == 8.0
    private.clear_scale(optimizer)
    assert private.pending_scale(optimizer) is None
    optimizer.step()
    assert p.tolist() == [-8.0, -8.0]


def test_the_children_of_wrappers_have_these_names():
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.distributed.fsdp import _common_utils

    compiled = torch.compile(nn.Linear(1, 1), backend="eager")
    wrapped = checkpoint_wrapper(nn.Linear(1, 1))
    names = (*private.child_modules(compiled), *private.child_modules(wrapped), _common_utils.FSDP_WRAPPED_MODULE)
    assert names == private.TRANSPARENT


def test_a_call_of_a_module_is_found_on_the_stack_of_this_thread_only():
    inner, outer, other = nn.Identity(), nn.Sequential(), nn.Identity()
    outer.append(inner)
    seen = []

    def look(module: nn.Module, args: object) -> None:
        seen.append([private.is_called_here(one) for one in (inner, outer, other)])
        thread = threading.Thread(target=lambda: seen.append([private.is_called_here(outer), private.calls_of(outer)]))
        thread.start()
        thread.join()

    inner.register_forward_pre_hook(look)
    outer(torch.ones(1))
    assert seen == [[True, True, False], [False, 1]]
    assert not private.is_called_here(outer)
