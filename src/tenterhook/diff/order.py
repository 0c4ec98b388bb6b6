"""Put the numbers of a step in the order in which training computed them."""

from __future__ import annotations

from collections.abc import Sequence

from tenterhook.diff.difference import Kind
from tenterhook.errors import PlanError, PlanFileError
from tenterhook.plan import POINTS, Plan
from tenterhook.record import TRAINING, Layer

#: the order within a step
STAGES: tuple[Kind, ...] = ("data", "weights", "forward", "loss", "backward", "rate", "update")


class Kinds:
    """Says what the numbers of each hook of a plan are.

    Args:
        plan: The plan as JSON text, or None.
    """

    def __init__(self, plan: str | None) -> None:
        try:
            hooks = list(Plan.from_json(plan)) if plan else []
        except (PlanError, PlanFileError):  # the plan contains functions, which a file cannot store
            hooks = []
        self._points = {hook.id: hook.at for hook in hooks}
        self._actions = {hook.id: hook.doing.partition("(")[0] for hook in hooks}

    def is_digest(self, hook: str) -> bool:
        """Return True if a hook records digests."""
        return self._actions.get(hook) in ("digest", "weight_digest")

    def kind_of(self, hook: str, target: str, name: str) -> Kind | None:
        """Return what a number is, or None if it is not compared."""
        if hook == TRAINING:
            return {"loss": "loss", "rate": "rate", "norm": "backward"}.get(name)  # type: ignore[return-value]
        at = self._points.get(hook)
        if at is None:
            return None
        if self._actions[hook] == "weight_digest":
            return "weights" if at == "grad_final" else "update"
        if at == "input" and target == ".":
            return "data"
        if at == "update":
            return "update"
        return {"forward": "forward", "backward": "backward", "step": "backward"}.get(POINTS[at].side)  # type: ignore[return-value]


class Order:
    """The place of each target in a forward and in a backward pass.

    Args:
        layers: The modules in the order in which they ran.
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        #: modules in the order in which their forward passes end: a module after the modules inside it
        last: dict[str, int] = {}
        for place, layer in enumerate(layers):
            for above in _above(layer.name):
                last[above] = place
        self._owner: dict[str, str] = {}
        self._within: dict[str, int] = {}
        for layer in layers:
            for number, name in enumerate(layer.parameters):
                self._owner.setdefault(name, layer.name)
                self._within.setdefault(name, number)
        names = sorted((layer.name for layer in layers), key=lambda name: (last[name], -_depth(name)))
        self._ends = {name: place for place, name in enumerate(names)}

    def place(self, kind: Kind, target: str) -> tuple[int, int, int, str]:
        """Return a key that sorts the targets of a step by the time at which their numbers were computed."""
        owner = self._owner.get(target) or target.partition(":")[0]
        end = self._ends.get(owner, len(self._ends))
        return STAGES.index(kind), -end if kind == "backward" else end, self._within.get(target, 0), target


def _above(name: str) -> list[str]:
    """Return a module's name and the names of the modules around it."""
    parts = [] if name == "." else name.split(".")
    return [".", *(".".join(parts[:length]) for length in range(1, len(parts) + 1))]


def _depth(name: str) -> int:
    return 0 if name == "." else name.count(".") + 1
