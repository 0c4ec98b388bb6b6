"""Follow the attributes that a pre-hook computes from the parameters of its module, such as those of weight_norm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tenterhook import torch_internals as private


@dataclass(slots=True)
class Derived:
    """The attributes that a pre-hook has computed, to notice what the program writes to them."""

    #: the name of an attribute that the program changed, and that the hook then computed again, or None
    lost_write: str | None = None
    #: by name: the id and the version of what the hook computed last
    _known: dict[str, tuple[int, int | None]] = field(default_factory=dict)

    def compare(self, before: Mapping[str, Tensor], module: Any) -> None:
        """Look which attributes a call of the hook has computed, and whether the program had changed one of them.

        Args:
            before: The tensors that were attributes of the module before the call.
            module: The module.
        """
        for name, old in before.items():
            new = vars(module).get(name)
            if new is None or new is old:
                continue
            number, version = self._known.get(name, (id(old), 0))
            first = name not in self._known
            # An object that the program itself has assigned may be computed from the same parameters.
            if number == id(old) and (private.version(old) != version or (first and _differ(name, old, new, module))):
                self.lost_write = name
            self._known[name] = id(new), private.version(new)


def derived_of(module: Any) -> dict[str, Tensor]:
    """Return the tensors that are attributes of a module, but no parameters and no buffers."""
    return {name: one for name, one in vars(module).items() if isinstance(one, Tensor)}


@torch.no_grad()
def _differ(name: str, old: Tensor, new: Tensor, module: Any) -> bool:
    """Return True if an attribute has another value than its parameters, which have not changed.

    An attribute such as `weight` is computed from parameters such as `weight_g` and `weight_v`.
    """
    own = private.own_parameters(module).items()
    sources = [parameter for key, parameter in own if key.startswith(f"{name}_") and parameter is not None]
    if not sources or any(map(private.version, sources)) or old.shape != new.shape:
        return False
    if old.is_meta or new.is_meta or old.device != new.device or old.dtype != new.dtype:
        return False  # the values cannot be compared
    return not torch.allclose(old, new, rtol=1e-3, equal_nan=True)
