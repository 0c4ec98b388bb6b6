"""Notice forward passes that do not call the root, such as `model.loss(x)` or Lightning's `training_step`.

Such a pass begins with a call of a module below the root. All modules that a pass can begin with are watched once a
step has passed without a call of the root, or after a part of the model was assigned. In a program that calls the root,
only the first two and the last of them are watched. They notice a first pass through another method, and what
`ModuleList.insert` or `del` have changed before it: PyTorch reports neither.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import Any

from torch import nn
from torch.compiler import is_dynamo_compiling
from torch.utils.hooks import RemovableHandle

from tenterhook import torch_internals as private
from tenterhook.rig.model_sync import ModelSync
from tenterhook.rig.root_hooks import RootHooks
from tenterhook.rig.runtime.entrances import Ends, entrances, entrances_of
from tenterhook.rig.runtime.registration import REMOVED, Dispatch
from tenterhook.rig.runtime.structure_events import ignore, listen
from tenterhook.rig.runtime.tensor_tree import leaves
from tenterhook.torch_internals import compiler as dynamo


class RootlessCalls:
    """An object that follows changes of the model at the first call of a module below the root in each step.

    Args:
        model: The model.
        root: The hooks on the root. If steps end with backward passes, they receive the outputs of the calls.
        sync: The object that follows changes.
        rig: The number of the rig.
        ends_steps: True if no optimizer ends steps, so that backward passes must be noticed.
        on_unwatched: Function that receives modules that may have been called before the change was noticed.
    """

    def __init__(
        self,
        model: nn.Module,
        root: RootHooks,
        sync: ModelSync,
        rig: int,
        *,
        ends_steps: bool,
        on_unwatched: Callable[[Sequence[nn.Module]], None],
    ) -> None:
        self._model = weakref.ref(model)
        self._root = weakref.ref(root)
        self._sync = sync
        self._rig = rig
        self._ends_steps = ends_steps
        self._on_unwatched = on_unwatched
        #: the handles of the hooks on all modules that a pass can begin with
        self._handles: list[RemovableHandle] = []
        self._watched: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        #: the ends of the model, and True while a hook needs them to be watched
        self._ends = Ends(self._notice)
        self._watches_ends = False
        #: the modules of the model, and the number of times that its targets had been looked up
        self._known: tuple[int, weakref.WeakSet[nn.Module]] | None = None
        #: True until a pass begins; the ends of the model show if it does not call the root
        self.waits = False
        #: True if the rig has looked at the model before the pass that is running, which does not call the root
        self._looked = False
        #: True until a module returns a tensor through which a backward pass can begin
        self._waits_for_output = False

    @property
    def handles(self) -> list[RemovableHandle]:
        return [*self._ends.handles.values(), *self._handles]

    # -- when to watch -----------------------------------------------------------------------------------------------

    def arm(self) -> None:
        """Watch the next call of any module that a pass can begin with."""
        model = self._model()
        if not self._watched and model is not None:
            self._watch(entrances(model))
        self.waits, self._waits_for_output = True, self._ends_steps
        self._sync.watches_calls = True

    def _watch(self, modules: Iterable[nn.Module]) -> None:
        for module in modules:
            if module not in self._watched:
                self._watched.add(module)
                if module not in self._ends.handles:
                    self._handles.append(self._notice(module))
                if self._ends_steps:
                    self._handles.append(module.register_forward_hook(Dispatch(self._end)))

    def _notice(self, module: nn.Module) -> RemovableHandle:
        return private.register_first(module, Dispatch(self._begin), with_kwargs=True)

    def disarm(self) -> None:
        """Watch only the ends of the model, because the root was called or the model has changed."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._watched.clear()
        self._looked = False
        self.waits = self._waits_for_output = self._sync.watches_calls = False

    def watch_ends(self, wanted: bool) -> None:
        """Watch the first two and the last of the modules that a pass can begin with, or stop watching them.

        If the compiler is loaded, they stay watched, because a change would make it compile the model again.
        """
        if wanted != self._watches_ends and (wanted or not dynamo.may_compile()):
            self._watches_ends = wanted
            self.find_ends()

    def find_ends(self) -> None:
        """Watch the modules that are the ends of the model now."""
        model = self._model()
        self._ends.move(list(entrances(model)) if self._watches_ends and model is not None else [])

    def report_unwatched(self) -> None:
        """Report the modules that come before the first watched one. A pass that failed may have called only these."""
        model = self._model()
        if self._sync.watches_calls and model is not None:
            self._on_unwatched(list(takewhile(lambda one: one not in self._watched, entrances(model))))

    def listen(self) -> None:
        """Begin to notice assignments. The modules of the model are read now, before they change."""
        self._parents()
        self.waits = True
        listen(self)

    def close(self) -> None:
        """Stop noticing calls and assignments."""
        self.disarm()
        self._watches_ends = False
        self.find_ends()
        ignore(self)

    def assigned(self, parent: nn.Module, new: object) -> None:
        """Watch the next call, because the program assigns a part of the model."""
        if parent in self._parents():
            if not self._sync.watches_calls:
                self._sync.look()  # a pass may have run after an earlier change that PyTorch did not report
            self.arm()
            if isinstance(new, nn.Module):
                self._watch(entrances_of(new))

    def _parents(self) -> weakref.WeakSet[nn.Module]:
        """Return the modules of the model, as they were when its targets were last looked up."""
        model = self._model()
        if self._known is None or self._known[0] != self._sync.resolved:
            self._known = self._sync.resolved, weakref.WeakSet(model.modules() if model is not None else ())
        return self._known[1]

    # -- what was called ---------------------------------------------------------------------------------------------

    @dynamo.skip_dynamo
    def _begin(self, module: nn.Module, args: Any, kwargs: Any = REMOVED) -> Any:
        if is_dynamo_compiling():
            return None  # compiled code reports its passes through the hooks on the root
        if kwargs is REMOVED or private.graph_task_id() != -1:
            return None
        model, last = self._model(), module in self._ends.last
        waits, self.waits = self.waits, False
        self._looked &= waits or module not in self._ends.first  # a pass that failed was not followed by a look
        if model is None or not (waits or last):
            return None
        in_root = private.is_called_here(model)
        self._looked |= waits and not in_root
        # After the last module, another pass may begin. If the rig did not see this one, its gradients must show it.
        self.waits = last and (in_root or self._looked)
        if not waits or in_root:
            return None
        before, there = self._sync.resolved, set(private.hooks_in(module, "_forward_pre_hooks"))
        found = list(entrances(model))
        # if only the ends were watched, the modules after this one get their hooks before they are called
        called = found if self._watched else takewhile(lambda one: one is not module, found)
        unwatched = [one for one in called if one not in self._watched and one not in self._ends.handles]
        self._sync.follow()
        self._sync.watches_calls = False
        if self._sync.resolved == before:
            return None
        self.disarm()
        self.arm()
        self._looked, self.waits, self._sync.watches_calls = True, module in self._ends.last, False
        self._on_unwatched(unwatched)
        return self._call_new_hooks(module, there, args, kwargs)

    def _call_new_hooks(self, module: nn.Module, there: set[int], args: Any, kwargs: Any) -> Any:
        """Call the rig's hooks that are new on a module. PyTorch has listed the hooks of this call before."""
        for key, fn in list(private.hooks_in(module, "_forward_pre_hooks").items()):
            if key not in there and getattr(fn, "place", (0, -1))[1] == self._rig:
                new = fn(module, args, kwargs)
                if new is not None:
                    args, kwargs = new
        return args, kwargs

    @dynamo.skip_dynamo
    def _end(self, module: nn.Module, args: Any, output: Any) -> None:
        if is_dynamo_compiling():
            return
        root = self._root()
        if not self._waits_for_output or root is None or private.graph_task_id() != -1:
            return
        made = [tensor for tensor in leaves(output) if tensor.requires_grad]
        if made:
            self._waits_for_output = False
            root.watch_backward(made)
