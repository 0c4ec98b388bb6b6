"""Put the numbers of a step in the order in which training computed them."""

from __future__ import annotations

from collections.abc import Sequence

from tenterhook.diff.difference import Kind
from tenterhook.errors import PlanError, PlanFileError
from tenterhook.plan import POINTS, Hook, Plan
from tenterhook.record import TRAINING, Layer

#: the name of the number that says when a call happened
ORDER = "order"
#: the order within a step
STAGES: tuple[Kind, ...] = ("data", "weights", "forward", "loss", "backward", "rate", "update")


class Kinds:
    """Says what the numbers of each hook of a plan are.

    Args:
        plan: The plan as JSON text, or None.

    Attributes:
        phases: The ids of the hooks that act in evaluation mode, and for each of them the id of the hook that does the
            same in training mode.
    """

    def __init__(self, plan: str | None) -> None:
        try:
            hooks = list(Plan.from_json(plan)) if plan else []
        except (PlanError, PlanFileError):  # the plan contains functions, which a file cannot store
            hooks = []
        self._points = {hook.id: hook.at for hook in hooks}
        self._actions = {hook.id: hook.doing.partition("(")[0] for hook in hooks}

        self.phases = _phases(hooks)

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
        if name == "weight" or self._actions[hook] == "weight_digest":
            return "weights" if at == "grad_final" else "update"
        if at == "input" and target == ".":
            return "data"
        if at == "update":
            return "update"
        return {"forward": "forward", "backward": "backward", "step": "backward"}.get(POINTS[at].side)  # type: ignore[return-value]


def _phases(hooks: Sequence[Hook]) -> tuple[list[str], list[str]]:
    """Return the hooks that act in evaluation mode, and for each of them the hook that does the same in training."""
    trained = {(str(hook.on), hook.at, hook.doing): hook.id for hook in hooks if hook.when.phase != "eval"}
    found = [
        (hook.id, same)
        for hook in hooks
        if hook.when.phase == "eval" and (same := trained.get((str(hook.on), hook.at, hook.doing))) is not None
    ]
    return [one for one, _ in found], [same for _, same in found]


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
        #: for each module with modules inside it, the first end of one of these
        self._begins: dict[str, int] = {}
        for place, name in enumerate(names):
            for above in _above(name)[:-1]:
                self._begins.setdefault(above, place)

    def place(self, kind: Kind, target: str) -> tuple[float, ...]:
        """Return a key that sorts the targets of a step by the time at which their numbers were computed."""
        owner = self._owner.get(target) or target.partition(":")[0]
        end: float = self._ends.get(owner, len(self._ends))
        if kind == "backward" and owner in self._begins:
            # Nothing says where such a module uses its own parameters. As the last ones in a backward pass, they are
            # named only if the gradients of all modules inside are equal.
            end = self._begins[owner] - 0.5
        return STAGES.index(kind), -end if kind == "backward" else end, self._within.get(target, 0)


def _above(name: str) -> list[str]:
    """Return a module's name and the names of the modules around it."""
    parts = [] if name == "." else name.split(".")
    return [".", *(".".join(parts[:length]) for length in range(1, len(parts) + 1))]


def _depth(name: str) -> int:
    return 0 if name == "." else name.count(".") + 1
