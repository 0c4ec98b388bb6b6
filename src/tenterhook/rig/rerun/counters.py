"""Keep the plain numbers that a forward pass changes, such as a number of calls, from counting a second run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

#: values that are restored; those of the first two types can be counted back
_PLAIN = (int, float, bool, str)


class Counters:
    """The plain values in a model's modules, and in the objects and dicts that are attributes of these modules.

    Args:
        model: The model.
    """

    def __init__(self, model: nn.Module) -> None:
        self._holders = list(_holders(model))
        self._before = self._values()

    def _values(self) -> dict[tuple[int, Any], Any]:
        return {
            (place, name): value
            for place, holder in enumerate(self._holders)
            for name, value in holder.items()
            if type(value) in _PLAIN
        }

    def count_back(self) -> bool:
        """Undo the run before the first one too, and return True if there is something to undo.

        A run that raises a number by 1 has done so twice, in the first run and in the second one. So a third run that
        is to be like the first one must begin with a number that is lower by 2.
        """
        now = self._values()
        changed = [key for key, value in self._before.items() if now.get(key) != value]
        for place, name in changed:
            value = self._before[place, name]
            if type(value) in (int, float) and type(now.get((place, name))) is type(value):
                self._holders[place][name] = value - (now[place, name] - value)
        return bool(changed)

    def restore(self) -> None:
        """Restore all values."""
        for (place, name), value in self._before.items():
            if self._holders[place].get(name) != value:
                self._holders[place][name] = value


def _holders(model: nn.Module) -> Iterator[dict[Any, Any]]:
    """Yield the attributes of each module, and those of the objects in them."""
    for module in model.modules():
        yield vars(module)
        for value in list(vars(module).values()):
            inside = value if type(value) is dict else _attributes(value)
            if type(inside) is dict and not isinstance(value, nn.Module | Tensor | type):
                yield inside


def _attributes(value: object) -> object:
    """Return the attributes of an object, or None if it has none or cannot be asked, like a dead weak proxy."""
    try:
        return vars(value)
    except (TypeError, ReferenceError):
        return None
