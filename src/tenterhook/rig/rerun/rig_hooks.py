"""Leave out the hooks of rigs while a step runs again, so that they do not count it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import nn

from tenterhook import torch_internals as private
from tenterhook.rig.rig import rigs_on
from tenterhook.rig.runtime.registration import Dispatch

_SLOTS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


@contextmanager
def without_rigs(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Take the hooks of all rigs off some modules in a block."""
    taken = []
    for module in modules:
        for slot in _SLOTS:
            hooks = private.hooks_in(module, slot)
            if any(isinstance(fn, Dispatch) for fn in hooks.values()):
                taken.append((hooks, dict(hooks)))
                others = {key: fn for key, fn in hooks.items() if not isinstance(fn, Dispatch)}
                hooks.clear()
                hooks.update(others)
    try:
        yield
    finally:
        for hooks, before in taken:
            hooks.clear()
            hooks.update(before)


def forward_modifier(model: nn.Module) -> str | None:
    """Return the id of a hook that changes the forward pass now, or None."""
    for rig in rigs_on(model):
        for hook in rig._installer.schedule.modifiers:
            return hook.hook.id
    return None
