"""Remember and restore the modes in which a module was called: gradients and autocast."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Modes:
    """The modes of a call. `autocast` has the type of each device, the dtype, and whether autocast is on."""

    gradients: bool
    autocast: tuple[tuple[str, torch.dtype, bool], ...]
    caches: bool

    @classmethod
    def now(cls, devices: Collection[str]) -> Modes:
        """Read the current modes. `devices` are the types of the devices to look at."""
        autocast = tuple((one, torch.get_autocast_dtype(one), torch.is_autocast_enabled(one)) for one in devices)
        return cls(torch.is_grad_enabled(), autocast, torch.is_autocast_cache_enabled())

    def is_half(self) -> bool:
        """Return True if autocast computed in float16, which needs a loss scale."""
        return any(on and dtype is torch.float16 for _, dtype, on in self.autocast)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Run a block in these modes."""
        with ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(self.gradients))
            for device, dtype, on in self.autocast:
                stack.enter_context(torch.autocast(device, dtype=dtype, enabled=on, cache_enabled=self.caches))
            yield
