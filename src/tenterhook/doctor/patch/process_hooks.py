"""Record the hooks that apply to a whole process or to DDP, and PyTorch's warnings about hooks."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

from torch.nn.modules import module as module_module
from torch.optim import optimizer as optimizer_module

from tenterhook import torch_internals as private
from tenterhook.doctor.observe.model_index import Caller, caller
from tenterhook.doctor.observe.observer import Observer
from tenterhook.doctor.reading.functions import bare
from tenterhook.plan import callable_name
from tenterhook.torch_internals.code_owner import is_users

#: the register functions that hook every module or every optimizer in the process
GLOBAL = {
    module_module: (
        "register_module_forward_pre_hook",
        "register_module_forward_hook",
        "register_module_backward_hook",
        "register_module_full_backward_pre_hook",
        "register_module_full_backward_hook",
    ),
    optimizer_module: ("register_optimizer_step_pre_hook", "register_optimizer_step_post_hook"),
}


#: the beginning of PyTorch's warning about the .grad of a non-leaf tensor
READ_NO_LEAF = "The .grad attribute of a Tensor that is not a leaf"


#: part of PyTorch's warning about global module hooks and torch.compile
FIRES_TWICE = "this will cause the hooks to fire an extra time for the `OptimizedModule`"


class ProcessHooks:
    """Records the hooks of a process that belong to no single module, tensor or optimizer."""

    def __init__(self) -> None:
        #: places in the code that read the .grad of a non-leaf tensor
        self.warned: list[str] = []
        #: places in the code that called a `torch.compile` wrapper while a global module hook was registered
        self.wrapped_calls: list[str] = []
        #: hooks that apply to every module or every optimizer, as (register function, caller)
        self.everywhere: list[tuple[str, Caller]] = []
        self._global_handles: list[Any] = []
        #: indices in `everywhere` of the hooks that were active during a call in `wrapped_calls`
        self.fired_around: set[int] = set()
        #: True if a communication hook was registered
        self.communicates = False
        #: communication hooks of the program, as (function, caller)
        self.communication: list[tuple[str, Caller]] = []

    def registering_communication(self, model: Any, state: object, hook: Any) -> Observer:
        """Observe the registration of a communication hook."""
        code = getattr(bare(hook), "__code__", None)
        self.communicates = True
        if code is not None and is_users(code.co_filename):
            self.communication.append((callable_name(hook), caller()))
        yield

    def registering_globally(self, kind: str, *_: Any, **__: Any) -> Observer:
        """Observe the registration of a hook on every module or every optimizer."""
        self.everywhere.append((kind, caller()))
        self._global_handles.append((yield))

    def warning(self, show: Callable[..., Any]) -> Callable[..., Any]:
        def shown(message: Any, category: Any, filename: str, lineno: int, *args: Any, **kwargs: Any) -> None:
            for text, places in ((READ_NO_LEAF, self.warned), (FIRES_TWICE, self.wrapped_calls)):
                if text in str(message):
                    place = f"{filename}:{lineno}"
                    if text is FIRES_TWICE:
                        there = (handle.id in (private.registered_in(handle) or ()) for handle in self._global_handles)
                        self.fired_around |= {number for number, alive in enumerate(there) if alive}
                    if place in places:
                        return  # Python would have shown the warning only once
                    places.append(place)
            show(message, category, filename, lineno, *args, **kwargs)

        return shown

    @staticmethod
    def listen() -> Callable[[], None]:
        """Show the two relevant PyTorch warnings every time, even in a second exam. Return an undo function."""
        filtered = (f[0] for f in warnings.filters if f[1] is None and issubclass(UserWarning, f[2]))
        if next(filtered, "default") == "error":
            return lambda: None
        warnings.filterwarnings("always", message=f".*({re.escape(READ_NO_LEAF)}|{re.escape(FIRES_TWICE)})")
        mine = warnings.filters[0]
        return lambda: warnings.filters.remove(mine) if mine in warnings.filters else None  # type: ignore[attr-defined]
