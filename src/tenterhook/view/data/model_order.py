"""Sort the targets of a run as the layers of the model ran, so that the targets inside a module are together."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from tenterhook.record import Layer

#: a number without leading zeros
_DIGITS = re.compile(r"0*([0-9]+)")
#: maximum depth to which a name is split; a name from an untrusted folder may have millions of parts
_DEPTH = 32
_UNKNOWN = 2**62


@dataclass(slots=True)
class _Node:
    """A part of a name: its place among the layers, the targets with this name, and the parts that follow."""

    place: int = _UNKNOWN
    names: list[str] = field(default_factory=list)
    below: dict[str, _Node] = field(default_factory=dict)

    def at(self, part: str) -> _Node:
        """Return the node of a part that follows, which is made if there is none."""
        node = self.below.get(part)
        if node is None:
            node = self.below[part] = _Node()
        return node


def model_order(names: Collection[str], layers: Sequence[Layer]) -> list[str]:
    """Sort the names of targets.

    The root comes first. Names that the layers do not contain, such as taps, follow those that they contain, with
    numbers in their numerical order.

    Args:
        names: The names of modules, parameters and taps.
        layers: The modules in the order in which they ran.
    """
    root = _Node()
    count = 0
    for layer in layers:
        for name in (layer.name, *layer.parameters):
            node = root
            for part in _parts(name):
                node = node.at(part)
                if node.place == _UNKNOWN:
                    node.place, count = count, count + 1
    for name in names:
        node = root
        for part in _parts(name):
            node = node.at(part)
        node.names.append(name)
    found: list[str] = []
    waiting = [root]
    while waiting:
        node = waiting.pop()
        found += sorted(node.names)
        following = sorted(node.below.items(), key=lambda item: (item[1].place, *natural_key(item[0])), reverse=True)
        waiting += [below for _, below in following]
    return found


def _parts(name: str) -> list[str]:
    """Split a name at dots and colons. The root has no parts."""
    return [] if name == "." else name.replace(":", ".").split(".", _DEPTH)


@lru_cache(maxsize=2**14)
def natural_key(name: str) -> tuple[str, str]:
    """Return a key that sorts `blocks.10` after `blocks.9`. A number is compared by its length, then by its digits."""
    return _DIGITS.sub(_longer_later, name), name


def _longer_later(digits: re.Match[str]) -> str:
    return f"{len(digits[1]):06}{digits[1]}"
