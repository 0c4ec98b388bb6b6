"""Copy the buffers that forward passes change, such as the running statistics of batch norm."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor, nn

from tenterhook import torch_internals as private

#: buffers with more elements are copied only if a forward pass has changed them
LARGE = 1 << 16
#: the modules are searched for buffers again after so many steps
INTERVAL = 64


class BufferCopies:
    """Copies of a model's buffers from before the first forward pass of a step.

    A large buffer, such as a mask, is copied in the first step. It is copied in later steps only if a step has changed
    it. Batch norm changes buffers without increasing their versions, so small buffers are always copied.

    Args:
        model: The model.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = weakref.ref(model)
        #: the modules that have buffers, with their names
        self._owners: list[tuple[str, weakref.ref[nn.Module]]] = []
        self._steps = 0
        #: the large buffers that do not change
        self._constant: set[str] = set()
        #: the buffers, and their versions before the first forward pass of the step
        self._before: dict[str, tuple[Tensor, int]] = {}
        self._copies: dict[str, Tensor] = {}

    def _now(self) -> dict[str, Tensor]:
        found = {}
        for prefix, ref in self._owners:
            if (module := ref()) is not None:
                for key, buffer in module.named_buffers(recurse=False):
                    found[f"{prefix}.{key}" if prefix else key] = buffer
        return found

    def _find_owners(self) -> None:
        model = self._model()
        modules = model.named_modules(remove_duplicate=False) if model is not None else ()
        self._owners = [(name, weakref.ref(one)) for name, one in modules if any(True for _ in one.buffers(False))]

    @torch.no_grad()
    def copy(self) -> None:
        """Copy the buffers, before the first forward pass of a step."""
        if self._steps % INTERVAL == 0:
            self._find_owners()
        self._steps += 1
        found = self._now()
        self._before = {name: (one, private.version(one) or 0) for name, one in found.items()}
        wanted = {name: one for name, one in found.items() if name not in self._constant}
        fits = self._copies.keys() == wanted.keys()
        if fits and all(_is_like(self._copies[name], one) for name, one in wanted.items()):
            if wanted:
                private.foreach_copy_(list(self._copies.values()), [wanted[name] for name in self._copies])
        else:
            self._copies = {name: buffer.clone() for name, buffer in wanted.items()}

    def clear(self) -> None:
        """End the step, and find out which large buffers it changed."""
        if self._steps == 1:
            now = self._now()
            large = {name for name, one in now.items() if one.numel() > LARGE and name in self._copies}
            self._constant = {name for name in large if torch.equal(self._copies[name], now[name])}
        elif self._constant:
            self._constant -= set(self.uncopied())
        self._before = {}

    def uncopied(self) -> list[str]:
        """Return the buffers that this step changed, and of which there is no copy."""
        now = self._now()
        same = {
            n for n, (b, version) in self._before.items() if now.get(n) is b and (private.version(b) or 0) == version
        }
        return sorted(now.keys() - same - self._copies.keys())

    def at_start(self) -> dict[str, Tensor]:
        """Return new copies of all buffers, as they were before the first forward pass of the step."""
        return {name: self._copies.get(name, buffer).detach().clone() for name, (buffer, _) in self._before.items()}


def _is_like(copy: Tensor, buffer: Tensor) -> bool:
    return copy.shape == buffer.shape and copy.dtype == buffer.dtype and copy.device == buffer.device
