"""Calls a callback with the gradient of a value inside a compiled graph.

From torch 2.13 on, dynamo traces a hook on such a tensor. In earlier versions, an autograd function takes its place. It
is not used in later versions, because it would keep graphs out of the compiler's cache.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tenterhook.rig.compiled.graph_ops import operations
from tenterhook.torch_internals.compiler import TRACES_TENSOR_HOOKS


class Call(NamedTuple):
    """Identifies a call of a callback. `value` is the forward value, if the hooks need it."""

    ticket: Tensor
    leaf: int = 0
    value: Tensor | None = None


def call_with_gradient(x: Tensor, owner: nn.Module, call: Call) -> Tensor:
    """Return a copy of `x`, and call a callback with the copy's gradient in the backward pass.

    A copy, not a view, because autograd drops the hooks of a view that is changed in place. If several rigs have hooks
    on the output of one module, the `owner`, their callbacks are called in the order in which the rigs were attached.
    """
    if not TRACES_TENSOR_HOOKS:
        return _with_function(x, owner, call)
    alias: Any = x if getattr(x, "_tenterhook_owner", None) is owner else x.clone()
    alias._tenterhook_owner = owner
    alias.register_hook(partial(_hook, call))
    copied: Tensor = alias
    return copied


def report_gradient(x: Tensor, owner: nn.Module, call: Call) -> Tensor | None:
    """Call a callback with the gradient of `x`. Return the tensor that replaces `x`, or None to keep it."""
    if not TRACES_TENSOR_HOOKS:
        return _with_function(x, owner, call)
    x.register_hook(partial(_hook, call))
    return None


def _hook(call: Call, grad: Tensor) -> Tensor:
    new: Tensor = operations.on_gradient(grad, *call)
    return new


class _GradientCall(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, ticket: Tensor, leaf: int, value: Tensor | None) -> Tensor:
        ctx.save_for_backward(ticket, value)
        ctx.leaf = leaf
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        ticket, value = ctx.saved_tensors
        return operations.on_gradient(grad, ticket, ctx.leaf, value), None, None, None


def _with_function(x: Tensor, owner: nn.Module, call: Call) -> Tensor:
    """Apply the functions of all rigs again, the last one first: a backward pass runs them in the opposite order."""
    alias: Any = x
    source, calls = x, (call,)
    if getattr(x, "_tenterhook_owner", None) is owner:
        source, calls = alias._tenterhook_source, (*alias._tenterhook_calls, call)
    passed = source
    for one in reversed(calls):
        passed = _GradientCall.apply(passed, *one)  # type: ignore[no-untyped-call]
    alias = passed.clone()  # torch 2.10 does not trace attributes of what a function returns
    alias._tenterhook_owner, alias._tenterhook_source, alias._tenterhook_calls = owner, source, calls
    copied: Tensor = alias
    return copied
