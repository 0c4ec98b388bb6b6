"""Dispatch at `grad_output`, `grad_input` and `value_grad`: tensor hooks on what a call returned or was given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling, is_exporting

from tenterhook.errors import ContractError, RefusedError
from tenterhook.rig import dynamo_private as dynamo
from tenterhook.rig import torch_private as private
from tenterhook.rig.clock import Clock
from tenterhook.rig.doors import Door, operations
from tenterhook.rig.fire import Fire, chain, make_fire
from tenterhook.rig.forward import Calls, graph_task_id, is_grad_enabled, may_keep, no_tensor
from tenterhook.rig.leaves import leaves, map_leaves
from tenterhook.rig.ledger import Site

NO_GRAD = "gradients are switched off (in a reentrant checkpoint it fires on recomputing)"
NOTHING_NEEDS_GRAD = "no tensor of this call requires a gradient"


class GradientHooks:
    """Makes the tensor hooks of some sites, one for each leaf of each call."""

    def __init__(self, sites: Sequence[Site], clock: Clock) -> None:
        self.sites = sites
        self._fire = chain([make_fire(s, captured=True) for s in sites])
        self._calls = Calls(clock, sites)
        self._keeps = [s for s in sites if s.live.definition.needs_value]
        self._may_keep = any(map(may_keep, sites))

    def lent(self, grad: Tensor) -> Tensor:
        return grad.clone() if self._may_keep else grad

    def begin(self) -> int | None:
        """Number the call. A reentrant checkpoint calls twice, first without gradients: the first one counts."""
        if not self._calls.contexts:
            return 0
        return self._calls.begin() if graph_task_id() == -1 else self._calls.recomputed()

    def on(self, tensor: Tensor, call: int | None, leaf: int) -> Fire:
        if not self._calls.contexts:
            return self._fire
        keeps = self._keeps
        value, version = (tensor.detach(), tensor._version) if keeps else (None, 0)

        @dynamo.breaks_graph
        def on_gradient(grad: Tensor | None) -> Tensor | None:
            for site in keeps:
                assert value is not None
                if value._version != version:
                    site.live.failed(site, _overwritten())
            return self.at(grad, call, leaf, value)

        return on_gradient

    def at(self, grad: Tensor | None, call: int | None, leaf: int, value: Tensor | None) -> Tensor | None:
        """The gradient of one leaf of a call has come."""
        self._calls.place(call, leaf)
        for site in self._keeps:
            site.ctx._value = value  # type: ignore[union-attr]
        try:
            return self._fire(grad)  # type: ignore[no-any-return]
        finally:
            for site in self._keeps:
                site.ctx._value = None  # type: ignore[union-attr]

    def attach(self, tensor: Tensor, fire: Fire) -> None:
        """Hook the tensor itself: right for one that this call made and returned alone."""
        if private.view_base(tensor) is None:
            tensor.register_hook(fire)
        else:
            self._watched(tensor, tensor, fire)

    def alias(self, tensor: Tensor, fire: Fire, key: tuple[int, str]) -> Tensor:
        """A view of the tensor whose gradient is that of the view's own uses.

        `key` is the call's module and point: of two rigs at one place the second hooks the first one's view.
        """
        if getattr(tensor, "_tenterhook", None) == key:
            self._watched(tensor, tensor, fire)
            return tensor
        view = tensor.view_as(tensor)
        view._tenterhook = key  # type: ignore[attr-defined]
        self._watched(view, tensor, fire)
        return view

    def _watched(self, hooked: Tensor, tensor: Tensor, fire: Fire) -> None:
        """Autograd forgets a view that is changed in place, and its hook with it; the hook on its base tells."""
        base = private.view_base(hooked)
        # A leaf cannot be changed in place through a view, and torch.func lets no version be kept.
        if base is None or base.grad_fn is None or private.is_functorch(tensor):
            hooked.register_hook(fire)
            return
        fired, counter = False, private.version_counter(tensor)
        version = counter._version

        @dynamo.breaks_graph
        def on_view(grad: Tensor | None) -> Any:
            nonlocal fired
            fired = True
            return fire(grad)

        @dynamo.breaks_graph
        def on_base(grad: Tensor | None) -> None:
            if not fired and counter._version != version:
                for site in self.sites:
                    if site.live.active and site.dormant is None:
                        site.live.failed(site, _lost(site))

        hooked.register_hook(on_view)
        base.register_hook(on_base)


def _lost(site: Site) -> RefusedError:
    module = site.point == "grad_input"
    who = "the module changes its own input in place" if module else "the tensor was changed in place afterwards"
    return RefusedError(
        f"{who}, so its gradient cannot be had",
        remedy="use inplace=False there" + (", or grad_output of the module before" if module else ""),
    )


def _overwritten() -> ContractError:
    return ContractError(
        "the value was changed in place after it was hooked, so ctx.value no longer holds it",
        remedy="do not change the tensor in place, or use an action without needs_value",
    )


def _turned(ticket: Tensor, leaf: int, value: Tensor | None, grad: Tensor) -> Tensor:
    new: Tensor = operations.turn(grad, ticket, leaf, value)
    return new


#: how many changes of the hooks may lie between a forward and its backward
KEPT = 64
#: more calls than a step has
CALLS = 2**32


class GradientDoor(Door):
    """For `grad_output`."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._hooks = GradientHooks((), clock)
        self._generation = 0
        self._served: dict[int, GradientHooks] = {}
        #: a graph with room for the values that actions ask for keeps it
        self.keeps = False

    def serve(self, hooks: GradientHooks) -> None:
        """A graph runs backward with the hooks of its forward, so the last ones are kept."""
        self._generation += 1
        self._served[self._generation] = self._hooks = hooks
        self._served.pop(self._generation - KEPT, None)

    def make_room(self, sites: Sequence[Site]) -> None:
        self.keeps = self.keeps or any(s.live.definition.needs_value for s in sites)

    def traced(self, module: nn.Module, output: Any) -> Any:
        """What is compiled in place of the dispatch."""
        ticket = operations.enter(self.token)
        if not is_grad_enabled():
            operations.skip(self.token, NO_GRAD)
            return None
        leaf, found = -1, False

        def visit(x: Tensor) -> Tensor | None:
            nonlocal leaf, found
            leaf += 1
            if not x.requires_grad:
                return None
            found = True
            # A copy, not a view: autograd forgets a view that is changed in place, and its hook with it. Of two rigs at
            # one place the second hooks the first one's copy.
            alias = x if getattr(x, "_tenterhook_owner", None) is module else x.clone()
            alias._tenterhook_owner = module  # type: ignore[attr-defined]
            value = x.detach() if self.keeps else None
            alias.register_hook(partial(_turned, ticket, leaf, value))
            return alias

        new = map_leaves(output, visit)
        if not found:
            operations.skip(self.token, no_tensor(output, "output") if leaf < 0 else NOTHING_NEEDS_GRAD)
        return new

    def enter(self) -> int:
        call = self._hooks.begin()
        return self._generation * CALLS + (0 if call is None else call + 1)

    def turn(self, grad: Tensor, call: int, leaf: int, value: Tensor | None) -> Tensor | None:
        generation, number = divmod(call, CALLS)
        hooks = self._served.get(generation, self._hooks)
        if not hooks.sites:
            return None
        value = None if value is None else value.clone()
        new = hooks.at(hooks.lent(grad), number - 1 if number else None, leaf, value)
        return None if new is None else hooks.lent(new)

    def skip(self, why: str) -> None:
        skipped(self._hooks.sites, why)


def grad_output_dispatch(sites: Sequence[Site], clock: Clock, door: GradientDoor) -> Callable[..., Any]:
    hooks = GradientHooks(sites, clock)
    door.serve(hooks)

    @dynamo.as_it_is
    def dispatch(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        if is_exporting():
            return None
        if is_dynamo_compiling():
            return door.traced(module, output)
        if not sites:
            return None
        call = hooks.begin()
        if not is_grad_enabled():
            return skipped(sites, NO_GRAD)
        key = (id(module), "grad_output")
        if type(output) is Tensor:
            if not output.requires_grad:
                return skipped(sites, NOTHING_NEEDS_GRAD)
            fire = hooks.on(output, call, 0)
            if output.grad_fn is not None and not _among(output, args, kwargs):
                hooks.attach(output, fire)
                return None
            return hooks.alias(output, fire, key)
        leaf, found = -1, False

        # Of several leaves one may have been made of another inside, so each gets an alias.
        def visit(x: Tensor) -> Tensor | None:
            nonlocal leaf, found
            leaf += 1
            if not x.requires_grad:
                return None
            found = True
            return hooks.alias(x, hooks.on(x, call, leaf), key)

        new = map_leaves(output, visit)
        if not found:
            skipped(sites, NOTHING_NEEDS_GRAD if leaves(output) else no_tensor(output, "output"))
        return new

    return dispatch


def grad_input_dispatch(sites: Sequence[Site], clock: Clock) -> Callable[..., Any]:
    hooks = GradientHooks(sites, clock)

    @dynamo.breaks_graph
    def dispatch(module: nn.Module, args: Any, kwargs: Any) -> Any:
        call, leaf = hooks.begin(), -1
        if not is_grad_enabled():
            return skipped(sites, NO_GRAD)
        views: dict[int, Tensor] = {}

        def visit(x: Tensor) -> Tensor | None:
            nonlocal leaf
            leaf += 1
            if not x.requires_grad:
                return None
            if id(x) not in views:
                views[id(x)] = hooks.alias(x, hooks.on(x, call, leaf), (id(module), "grad_input"))
            return views[id(x)]

        args, kwargs = map_leaves(args, visit), map_leaves(kwargs, visit)
        return (args, kwargs) if views else skipped(sites, NOTHING_NEEDS_GRAD)

    return dispatch


def _among(tensor: Tensor, args: Any, kwargs: Any) -> bool:
    if len(args) == 1 and not kwargs and type(args[0]) is Tensor:
        return tensor is args[0]
    return any(tensor is x for x in leaves(args)) or any(tensor is x for x in leaves(kwargs))


def skipped(sites: Sequence[Site], why: str) -> None:
    if graph_task_id() == -1:
        for site in sites:
            if site.live.active:
                site.skip(why)
