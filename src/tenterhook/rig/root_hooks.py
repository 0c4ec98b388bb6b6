"""Register hooks on the root to report when a forward pass begins and ends, and when its backward pass begins."""

from __future__ import annotations

import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling
from torch.utils.hooks import RemovableHandle

from tenterhook import torch_internals as private
from tenterhook.errors import RefusedError
from tenterhook.rig.compiled.gradient_callbacks import Call, report_gradient
from tenterhook.rig.compiled.graph_ops import EntryCallback, operations
from tenterhook.rig.compiled.graph_tracker import GraphTracker
from tenterhook.rig.runtime.forward_pass import ForwardPasses
from tenterhook.rig.runtime.registration import Dispatch, inert
from tenterhook.rig.runtime.tensor_tree import leaves, map_leaves
from tenterhook.torch_internals import compiler as dynamo


class RootEvents(NamedTuple):
    """The functions that the root's hooks call."""

    #: called when a forward pass begins; returns True if parts of the model were replaced
    begin_forward: Callable[[], bool]
    #: called when a forward pass has ended, if the end is watched
    end_forward: Callable[[], None]
    #: called when a backward pass through the root's output begins
    begin_backward: Callable[[], None]
    #: called when a forward pass has ended and its output requires no gradient
    no_backward: Callable[[], None]


#: the root hooks of all rigs in this process
_roots: weakref.WeakSet[RootHooks] = weakref.WeakSet()


class RootHooks:
    """Hooks that watch the root's forward and backward passes while the rig is attached. They keep the rig alive."""

    def __init__(
        self, owner: object, model: nn.Module, passes: ForwardPasses, graphs: GraphTracker, events: RootEvents
    ) -> None:
        #: the rig that these hooks belong to
        self.owner = owner
        self.events = events
        self.passes = passes
        #: True if the rig is detached; the hooks may still be registered, but they do nothing
        self.silent = False
        self._model = weakref.ref(model)
        self._graphs = graphs
        graphs.touched.append((self, model))
        self._begin_callback = EntryCallback(self._begin_in_graph)
        self._end_callback = RootEndCallback(self)
        self._begin = private.register_first(model, RootDispatch(self))
        self._end: RemovableHandle | None = None
        #: the thread that last called the root
        self._thread = threading.get_ident()
        #: number of calls of the root inside its call
        self._depth = 0
        #: id of the error that the program was handling when the call began
        self._handled = id(None)
        _roots.add(self)
        #: True if compiled code calls the root and the end hook is in the graph
        self._end_is_pinned = False

    def expect(self) -> None:
        """Keep the end hook registered from now on, because compiled code calls the root."""
        self._end_is_pinned = self.passes.compiled = True

    def watch_end(self, wanted: bool) -> None:
        """Start or stop watching the end of the root's forward pass.

        Hooks that modify the forward pass, hooks on taps and rigs without an optimizer need to know when the pass ends.
        """
        if wanted and self._end is None:
            model = self._model()
            if model is not None:
                self._end = model.register_forward_hook(Dispatch(self.end), always_call=True)
                self._graphs.touched.append((self, model))
        elif not wanted and not self._end_is_pinned:
            self._remove_end()

    def _remove_end(self) -> None:
        if self._end is not None:
            self._end.remove()
            self._end = None

    @property
    def end_handle(self) -> RemovableHandle | None:
        """Return the handle of the hook at the end of the forward pass, or None if the end is not watched."""
        return self._end

    def remove(self) -> None:
        self._begin.remove()
        self._remove_end()
        model = self._model()
        if model is not None:
            self._graphs.touched.append((self, model))
        self._graphs.update()

    @dynamo.skip_dynamo
    def begin(self, module: nn.Module, args: Any) -> None:
        """Begin a forward pass, unless the call is a recomputation during a backward pass."""
        if is_dynamo_compiling():
            operations.enter(self._begin_callback.token)
        elif private.graph_task_id() == -1:
            if threading.get_ident() != self._thread:
                self._change_thread()
            if self.passes.under_way and private.calls_of(module) > 1:
                self._depth += 1  # the root calls itself
                return
            self._depth, self._handled = 0, id(sys.exc_info()[1])
            self.events.begin_forward()

    def _change_thread(self) -> None:
        """Continue in this thread, unless the previous one still runs the model."""
        if private.runs_a_pass(self._thread, self._model()):
            raise RefusedError(
                "two threads run the model at the same time, so the rig cannot tell their passes apart",
                remedy="run the model in one thread at a time, or give each thread a copy of the model and its own rig",
            )
        self._thread = threading.get_ident()

    def _begin_in_graph(self) -> None:
        """Begin a forward pass in compiled code that PyTorch selected before the rig could check the model."""
        if self.events.begin_forward():
            warnings.warn(
                "tenterhook: a part of the model was replaced, and this forward pass was compiled without its hooks. "
                "The hooks fire from the next forward pass on\n"
                "  remedy: compile the model itself, with torch.compile(model)",
                RuntimeWarning,
                stacklevel=2,
            )

    @dynamo.skip_dynamo
    def end(self, module: nn.Module, args: Any, output: Any) -> Any:
        """End a forward pass, even if it raised an error."""
        if is_dynamo_compiling():
            return self._end_callback.traced(module, output)
        if private.graph_task_id() != -1 or self.silent:
            return None
        if self._depth:
            self._depth -= 1
            return None
        self.passes.under_way = False
        if id(sys.exc_info()[1]) == self._handled:
            self._hook_output(output)  # a forward pass that raised an error has no output
        self.events.end_forward()
        return None

    def _hook_output(self, output: Any) -> None:
        """Register a tensor hook on the output to report when a backward pass through its graph begins."""
        tensors = [t for t in leaves(output) if t.requires_grad] if torch.is_grad_enabled() else []
        if not tensors:
            self.events.no_backward()
        self.watch_backward(tensors)

    def watch_backward(self, tensors: Sequence[Tensor]) -> None:
        """Register a tensor hook on each tensor to report when a backward pass through its graph begins."""
        begin_backward = BackwardStart(self)
        for tensor in tensors:
            base = private.view_base(tensor)  # an in-place change drops a view's hooks, but not its base's hooks
            hooked = tensor if base is None else base
            if hooked.grad_fn is not None:
                hooked.register_hook(begin_backward)


class RootEndCallback(EntryCallback):
    """A callback by which compiled code reports the end of a forward pass and the beginning of a backward pass."""

    def __init__(self, root: RootHooks) -> None:
        super().__init__(self._ended)
        self._root = weakref.ref(root)

    def traced(self, module: nn.Module, output: Any) -> Any:
        """Insert this callback into the compiled graph, instead of the dispatch. Return the root's output."""
        ticket = operations.enter(self.token)
        found = False

        def visit(x: Tensor) -> Tensor | None:
            nonlocal found
            if not x.requires_grad:
                return None
            found = True
            return report_gradient(x, module, Call(ticket))

        new = map_leaves(output, visit) if torch.is_grad_enabled() else output
        if not found:
            operations.skip(self.token, "")
        return new

    def _ended(self) -> None:
        root = self._root()
        if root is not None and not root.silent:
            root.passes.under_way = False
            root.events.end_forward()

    def on_gradient(self, grad: Tensor, call: int, leaf: int, value: Tensor | None) -> None:
        root = self._root()
        if root is not None:
            root.events.begin_backward()

    def skip(self, why: str) -> None:
        root = self._root()
        if root is not None and private.graph_task_id() == -1:
            root.events.no_backward()


class RootDispatch(Dispatch):
    """A hook that calls the rig before the root's forward pass."""

    root: RootHooks | None

    def __new__(cls, root: RootHooks | None = None) -> RootDispatch:
        made = super().__new__(cls, root.begin if root is not None else _nothing)
        made.root = root
        return made

    def __copy__(self) -> Dispatch:
        return RootDispatch()

    def __deepcopy__(self, memo: object) -> Dispatch:
        return RootDispatch()

    def __reduce__(self) -> Any:
        return RootDispatch, ()


def _nothing(*args: Any) -> None:
    """Do nothing, because a copied model has no rig."""


class BackwardStart:
    """A tensor hook that reports the beginning of a backward pass through the root's output.

    It keeps the `ForwardPass` alive as long as the autograd graph exists.
    """

    def __init__(self, root: RootHooks) -> None:
        self._root = weakref.ref(root)
        self._passes = root.passes
        self._forward = root.passes.now

    @dynamo.breaks_graph
    def __call__(self, grad: Tensor | None) -> None:
        passes = self._passes
        passes.replayed = self._forward
        passes.task = private.graph_task_id()
        private.at_end_of_backward(passes.backward_ended)
        root = self._root()
        if root is not None:
            root.events.begin_backward()


def roots_on(model: nn.Module) -> list[RootHooks]:
    """Return the root hooks of all rigs on a model or on a part of it."""
    parts = set(model.modules())
    return [root for root in _roots if root._model() in parts]


def remove_inert_hooks(model: nn.Module) -> None:
    """Remove the inert hooks that a copy of an attached model contains."""
    for module in model.modules():
        for slot in private.MODULE_SLOTS:
            hooks = private.hooks_in(module, slot)
            for key, fn in list(hooks.items()):
                inner = getattr(fn, "hook", fn)  # PyTorch wraps some hooks in an object
                ours = isinstance(inner, Dispatch) and inner.func in (inert, _nothing)
                if ours and not hasattr(inner, "place"):
                    private.forget_hook(module, slot, key)
