"""Copy and restore the state of all random generators that a forward pass may use."""

from __future__ import annotations

import random
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class RandomState:
    """The state of the random generators of torch, Python and NumPy. None if a generator was not asked for."""

    cpu: Tensor
    devices: dict[torch.device, Tensor]
    python: Any = None
    numpy: Any = None

    @classmethod
    def now(cls, devices: Collection[torch.device] = (), *, hosts: bool = True) -> RandomState:
        """Copy the current state.

        Args:
            devices: Devices other than the CPU.
            hosts: If False, leave out the generators of Python and NumPy, which take longer than torch's.
        """
        numpy = sys.modules.get("numpy") if hosts else None
        return cls(
            torch.get_rng_state(),
            {device: torch.get_device_module(device).get_rng_state(device) for device in devices},
            random.getstate() if hosts else None,
            numpy.random.get_state() if numpy is not None else None,
        )

    def restore(self) -> None:
        """Set the generators to this state."""
        torch.set_rng_state(self.cpu)
        for device, state in self.devices.items():
            torch.get_device_module(device).set_rng_state(state, device)
        if self.python is not None:
            random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy"].random.set_state(self.numpy)

    def same_hosts(self, other: RandomState) -> bool:
        """Return True if the generators of Python and NumPy have the same state."""
        if self.python != other.python or (self.numpy is None) != (other.numpy is None):
            return False
        if self.numpy is None:
            return True
        mine, others = self.numpy, other.numpy
        return bool((mine[1] == others[1]).all()) and mine[2:] == others[2:]


@contextmanager
def kept_random_state(devices: Collection[torch.device] = ()) -> Iterator[None]:
    """Restore all random generators at the end of the block."""
    before = RandomState.now(devices)
    try:
        yield
    finally:
        before.restore()
