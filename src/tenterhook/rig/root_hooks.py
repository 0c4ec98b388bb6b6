"""The root's own hooks: where a forward begins and ends, and where steps without an optimizer end."""

from __future__ import annotations

import sys
import warnings
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling
from torch.utils.hooks import RemovableHandle

from tenterhook import torch_internals as private
from tenterhook.rig.compiled.graph_ops import CallDoor, operations
from tenterhook.rig.runtime.registration import Dispatch, inert
from tenterhook.rig.runtime.tensor_tree import leaves
from tenterhook.torch_internals import compiler as dynamo

if TYPE_CHECKING:
    from tenterhook.rig.rig import Rig


class Root:
    """Put up for as long as the rig is attached; it also keeps the rig alive with the model."""

    def __init__(self, rig: Rig, model: nn.Module) -> None:
        self.rig = rig
        self.stays = False
        self._model = weakref.ref(model)
        rig._rigging.touched.append((self, model))
        self._beginning = CallDoor(self._begin_in_graph)
        self._ending = EndDoor(rig)
        self._begin = model.register_forward_pre_hook(RootDispatch(self), prepend=True)
        self._end: RemovableHandle | None = None

    def watch_end(self, wanted: bool) -> None:
        """The end of the forward matters only to modifiers of it, and where nothing else ends a step."""
        if wanted and self._end is None:
            model = self._model()
            if model is not None:
                self._end = model.register_forward_hook(Dispatch(self.end), always_call=True)
                self.rig._rigging.touched.append((self, model))
        elif not wanted and not self.stays:
            self._leave_end()

    def _leave_end(self) -> None:
        if self._end is not None:
            self._end.remove()
            self._end = None

    @property
    def watches_end(self) -> bool:
        return self._end is not None

    def remove(self) -> None:
        self._begin.remove()
        self._leave_end()
        model = self._model()
        if model is not None:
            self.rig._rigging.touched.append((self, model))
        self.rig._rigging.tell_graphs()

    @dynamo.skip_dynamo
    def begin(self, module: nn.Module, args: Any) -> None:
        if is_dynamo_compiling():
            operations.enter(self._beginning.token)
        elif private.graph_task_id() == -1:
            self.rig._begin_forward()

    def _begin_in_graph(self) -> None:
        """Compiled code calls the root, and was chosen before anybody could look at the model."""
        resolved = self.rig._rigging.resolved
        self.rig._begin_forward()
        if self.rig._rigging.resolved != resolved:
            warnings.warn(
                "tenterhook: a part of the model was replaced, and this forward was compiled without its hooks\n"
                "  remedy: nothing to do from the next forward on; compile the model itself, torch.compile(model)",
                RuntimeWarning,
                stacklevel=2,
            )

    @dynamo.skip_dynamo
    def end(self, module: nn.Module, args: Any, output: Any) -> None:
        if is_dynamo_compiling():
            self._ending.traced(output)
            return
        if private.graph_task_id() != -1 or not self.rig.attached:
            return
        self.rig._clock.in_forward = False
        if sys.exc_info()[0] is None:
            self._hook(output)  # otherwise the forward raised, and nothing has ended
        if self.rig._leaving:
            self.rig.detach()

    def _hook(self, output: Any) -> None:
        """See the graph of this forward run backward."""
        tensors = [t for t in leaves(output) if t.requires_grad] if torch.is_grad_enabled() else []
        if not tensors:
            self.rig._ended_without_optimizer()
        on_backward = Backward(self.rig)
        for tensor in tensors:
            base = private.view_base(tensor)  # a view loses its hooks when it is changed in place, its base does not
            hooked = tensor if base is None else base
            if hooked.grad_fn is not None:
                hooked.register_hook(on_backward)


def _seen(ticket: Tensor, grad: Tensor) -> Tensor:
    passed: Tensor = operations.turn(grad, ticket, 0, None)
    return passed


class EndDoor(CallDoor):
    """Where compiled code calls the root itself: the end of its forward, and the beginning of its backward."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(self._ended)
        self._rig = weakref.ref(rig)

    def traced(self, output: Any) -> None:
        """What is compiled in place of the dispatch."""
        ticket = operations.enter(self.token)
        tensors = [t for t in leaves(output) if t.requires_grad] if torch.is_grad_enabled() else []
        for tensor in tensors:
            tensor.register_hook(partial(_seen, ticket))
        if not tensors:
            operations.skip(self.token, "")

    def _ended(self) -> None:
        rig = self._rig()
        if rig is not None and rig.attached:
            rig._clock.in_forward = False
            if rig._leaving:
                rig.detach()

    def turn(self, grad: Tensor, call: int, leaf: int, value: Tensor | None) -> None:
        rig = self._rig()
        if rig is not None:
            end_with_backward(rig)

    def skip(self, why: str) -> None:
        rig = self._rig()
        if rig is not None and private.graph_task_id() == -1:
            rig._ended_without_optimizer()


class RootDispatch(Dispatch):
    """How a rig is found on a model."""

    def __new__(cls, root: Root | None = None) -> RootDispatch:
        made = super().__new__(cls, root.begin if root is not None else _nothing)
        made.root = root
        return made

    root: Root | None

    def __copy__(self) -> Dispatch:
        return RootDispatch()

    def __deepcopy__(self, memo: object) -> Dispatch:
        return RootDispatch()

    def __reduce__(self) -> Any:
        return RootDispatch, ()


def _nothing(*args: Any) -> None:
    """A copy's root belongs to no rig."""


class Backward:
    """A hook on the root's output: its graph runs backward now. Holds the pass for as long as the graph lives."""

    def __init__(self, rig: Rig) -> None:
        self._rig = weakref.ref(rig)
        self._clock = rig._clock
        self._forward = rig._clock.now

    @dynamo.breaks_graph
    def __call__(self, grad: Tensor | None) -> None:
        self._clock.replayed = self._forward
        self._clock.task = private.graph_task_id()
        private.at_end_of_backward(self._clock.backward_ended)
        rig = self._rig()
        if rig is not None:
            end_with_backward(rig)


def end_with_backward(rig: Rig) -> None:
    """Where there is no optimizer, the step ends when this backward does."""
    if not rig.attached or rig._steps:
        return
    task = private.graph_task_id()
    if task != rig._backward_task:  # several outputs, several forwards: one backward
        rig._backward_task = task
        # Queued at the end again, so that it comes after whatever else waits for the end.
        private.at_end_of_backward(lambda: private.at_end_of_backward(rig._ended_without_optimizer))


def sweep(model: nn.Module) -> None:
    """Remove the inert hooks that a copy of an attached model carries."""
    for module in model.modules():
        for slot in private.MODULE_SLOTS:
            hooks = private.hooks_in(module, slot)
            for key, fn in list(hooks.items()):
                inner = getattr(fn, "hook", fn)  # torch wraps some hooks
                ours = isinstance(inner, Dispatch) and inner.func in (inert, _nothing)
                if ours and not hasattr(inner, "place"):
                    private.forget_hook(module, slot, key)


def rigs_on(model: nn.Module) -> list[Rig]:
    """The rigs attached to a model or to a part of it, in attach order."""
    found: dict[int, Rig] = {}
    seen: set[int] = set()
    pending: list[nn.Module] = [model]
    while pending:
        module = pending.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        pending += [child for child in private.child_modules(module).values() if child is not None]
        for hook in private.hooks_in(module, "_forward_pre_hooks").values():
            if isinstance(hook, RootDispatch) and hook.root is not None and hook.root.rig.attached:
                found[hook.root.rig._number] = hook.root.rig
    return [found[number] for number in sorted(found)]
