"""Dispatch at module points: what PyTorch calls for `input`, `output` and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tenterhook.errors import RefusedError
from tenterhook.rig import torch_private as private
from tenterhook.rig.clock import Clock
from tenterhook.rig.fire import Fire, chain, make_fire, make_replay
from tenterhook.rig.leaves import leaves, map_leaves
from tenterhook.rig.ledger import Site
from tenterhook.rig.live import LiveHook

graph_task_id = private.graph_task_id
saved_tensors_hooks = private.saved_tensors_hooks
is_grad_enabled = torch.is_grad_enabled


class Calls:
    """Numbers the calls of a target within a step, for actions that ask."""

    def __init__(self, clock: Clock, sites: Sequence[Site]) -> None:
        self._clock = clock
        self._step = -1
        self._next = 0
        self.contexts = [s.ctx for s in sites if s.ctx is not None]

    def begin(self) -> int:
        if self._step != self._clock.step:
            self._step, self._next = self._clock.step, 0
        self._next += 1
        return self._next - 1

    def place(self, call: int, leaf: int) -> None:
        for ctx in self.contexts:
            ctx.call, ctx.leaf = call, leaf


def visitor(sites: Sequence[Site], clock: Clock) -> tuple[Fire | None, Callable[[], Fire] | None]:
    """What fires on each tensor leaf: the same for every call, or made for each if actions ask which it is."""
    if not sites:
        return None, None
    fire = chain([make_fire(s) for s in sites])
    calls = Calls(clock, sites)
    if not calls.contexts:
        return fire, None

    def begin() -> Fire:
        call, leaf = calls.begin(), -1

        def visit(x: Tensor) -> Tensor | None:
            nonlocal leaf
            leaf += 1
            calls.place(call, leaf)
            return fire(x)  # type: ignore[no-any-return]

        return visit

    return None, begin


def replayer(sites: Sequence[Site], clock: Clock) -> Callable[[], Fire | None]:
    """Gives, for a call inside a recomputation, the modifications of the pass it belongs to."""
    modifiers = [(s, make_replay(s)) for s in sites if s.live.modifies_forward]

    def begin() -> Fire | None:
        if not modifiers:
            return None
        forward = clock.recomputed()
        site = modifiers[0][0]
        if forward is None or (forward.step != clock.step and any(s.live.state for s, _ in modifiers)):
            raise RefusedError(
                "a checkpoint recomputes a forward whose modifiers have changed since, and it cannot be told which",
                hook=site.hook, target=site.name, point=site.point,
                remedy="run backward before changing the hook, or compute the loss from the model's own output",
            )  # fmt: skip
        fires = [replay for s, replay in modifiers if s.live in forward.modifiers]
        return chain(fires) if fires else None

    return begin


def output_dispatch(active: Sequence[Site], serving: Sequence[Site], clock: Clock) -> Callable[..., Any]:
    (always, begin), replay = visitor(active, clock), replayer(serving, clock)
    modifiers = frozenset(s.live for s in active if s.live.modifies_forward)

    def dispatch(module: nn.Module, args: Any, output: Any) -> Any:
        if graph_task_id() != -1:
            return recompute(output)
        fire = always or (begin() if begin is not None else None)
        if fire is None:
            return None
        if type(output) is Tensor:
            new = fire(output)
        else:
            new = map_leaves(output, fire)
            if new is output:
                return None
        if new is not None:
            note_checkpoint(clock, modifiers)
        return new

    def recompute(output: Any) -> Any:
        fire = replay()
        return None if fire is None else map_leaves(output, fire)

    return dispatch


def input_dispatch(active: Sequence[Site], serving: Sequence[Site], clock: Clock) -> Callable[..., Any]:
    (always, begin), replay = visitor(active, clock), replayer(serving, clock)
    modifiers = frozenset(s.live for s in active if s.live.modifies_forward)

    def dispatch(module: nn.Module, args: Any, kwargs: Any) -> Any:
        if graph_task_id() != -1:
            return recompute(args, kwargs)
        fire = always or (begin() if begin is not None else None)
        if fire is None:
            return None
        if len(args) == 1 and type(args[0]) is Tensor and not kwargs:
            new = fire(args[0])
            if new is None:
                return None
            given = (new,), kwargs
        else:
            given = map_leaves(args, fire), map_leaves(kwargs, fire)
            if given[0] is args and given[1] is kwargs:
                return None
        note_checkpoint(clock, modifiers)
        return given

    def recompute(args: Any, kwargs: Any) -> Any:
        fire = replay()
        return None if fire is None else (map_leaves(args, fire), map_leaves(kwargs, fire))

    return dispatch


def note_checkpoint(clock: Clock, modifiers: frozenset[LiveHook]) -> None:
    """A value was changed. Both kinds of checkpoint show in the forward: by no_grad, or by hooks on what is saved."""
    if is_grad_enabled() and saved_tensors_hooks(False) is None:
        return
    if not modifiers <= clock.now.modifiers:  # a part of the model was called without its root
        clock.begin_pass(clock.now.modifiers | modifiers)
    clock.now.recomputes = True


def backward_fire(sites: Sequence[Site], clock: Clock) -> Callable[[Calls, int, int, Tensor], Fire]:
    """Gives the tensor hook for one leaf of one call."""
    fire = chain([make_fire(s, captured=True) for s in sites])
    keeps = [s.ctx for s in sites if s.live.definition.needs_value and s.ctx is not None]
    numbered = any(s.ctx is not None for s in sites)

    def make(calls: Calls, call: int, leaf: int, tensor: Tensor) -> Fire:
        if not numbered:
            return fire
        value = tensor.detach() if keeps else None

        def on_gradient(grad: Tensor | None) -> Tensor | None:
            calls.place(call, leaf)
            for ctx in keeps:
                ctx._value = value
            try:
                return fire(grad)  # type: ignore[no-any-return]
            finally:
                for ctx in keeps:
                    ctx._value = None

        return on_gradient

    return make


def alias(tensor: Tensor, fire: Fire, sites: Sequence[Site]) -> Tensor:
    """A view of the tensor whose gradient is that of the view's own uses.

    Autograd forgets a view that is changed in place, and with it the hook; the hook on the tensor itself tells.
    """
    view = tensor.view_as(tensor)
    if tensor.grad_fn is None:
        view.register_hook(fire)
        return view
    version, probe, fired = tensor._version, tensor.detach(), False

    def on_view(grad: Tensor | None) -> Any:
        nonlocal fired
        fired = True
        return fire(grad)

    def on_tensor(grad: Tensor | None) -> None:
        if not fired and probe._version != version:
            for site in sites:
                if site.live.active:
                    site.live.failed(site, _lost(site))

    view.register_hook(on_view)
    tensor.register_hook(on_tensor)
    return view


def _lost(site: Site) -> RefusedError:
    module = site.point == "grad_input"
    who = "the module changes its own input in place" if module else "the tensor was changed in place afterwards"
    return RefusedError(
        f"{who}, so its gradient cannot be had",
        remedy="use inplace=False there" + (", or grad_output of the module before" if module else ""),
    )


NO_GRAD = "gradients are switched off"
NOTHING_NEEDS_GRAD = "no tensor of this call requires a gradient"


def grad_output_dispatch(sites: Sequence[Site], clock: Clock) -> Callable[..., Any]:
    make, calls = backward_fire(sites, clock), Calls(clock, sites)

    def dispatch(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        if not is_grad_enabled():
            return _skipped(sites, NO_GRAD)
        call = calls.begin()
        if type(output) is Tensor:
            if not output.requires_grad:
                return _skipped(sites, NOTHING_NEEDS_GRAD)
            fire = make(calls, call, 0, output)
            if output.grad_fn is not None and not _among(output, args, kwargs):
                output.register_hook(fire)
                return None
            return alias(output, fire, sites)
        leaf, found = -1, False

        # Of several leaves one may have been made of another inside, so each gets an alias.
        def visit(x: Tensor) -> Tensor | None:
            nonlocal leaf, found
            leaf += 1
            if not x.requires_grad:
                return None
            found = True
            return alias(x, make(calls, call, leaf, x), sites)

        new = map_leaves(output, visit)
        return new if found else _skipped(sites, NOTHING_NEEDS_GRAD)

    return dispatch


def grad_input_dispatch(sites: Sequence[Site], clock: Clock) -> Callable[..., Any]:
    make, calls = backward_fire(sites, clock), Calls(clock, sites)

    def dispatch(module: nn.Module, args: Any, kwargs: Any) -> Any:
        if not is_grad_enabled():
            return _skipped(sites, NO_GRAD)
        call, leaf = calls.begin(), -1
        views: dict[int, Tensor] = {}

        def visit(x: Tensor) -> Tensor | None:
            nonlocal leaf
            leaf += 1
            if not x.requires_grad:
                return None
            if id(x) not in views:
                views[id(x)] = alias(x, make(calls, call, leaf, x), sites)
            return views[id(x)]

        args, kwargs = map_leaves(args, visit), map_leaves(kwargs, visit)
        return (args, kwargs) if views else _skipped(sites, NOTHING_NEEDS_GRAD)

    return dispatch


def _among(tensor: Tensor, args: Any, kwargs: Any) -> bool:
    if len(args) == 1 and not kwargs and type(args[0]) is Tensor:
        return tensor is args[0]
    return any(tensor is x for x in leaves(args)) or any(tensor is x for x in leaves(kwargs))


def _skipped(sites: Sequence[Site], why: str) -> None:
    """The root may be evaluating, and a reentrant checkpoint's first forward has no graph: only told if it matters."""
    if graph_task_id() == -1:
        for site in sites:
            if site.live.active:
                site.skip(why)
