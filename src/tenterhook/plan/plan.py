"""Define `Plan`, an ordered tuple of hooks that can be converted from and to text.

The reader and the writer load msgspec, so they are imported only when a program first uses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tenterhook.errors import PlanError, UnknownHookError
from tenterhook.plan.hook import ALWAYS, Hook
from tenterhook.text_table import TextTable

MAX_HOOKS = 1024


@dataclass(frozen=True, slots=True)
class Plan:
    """An ordered tuple of hooks that describes what to observe or change during training.

    A plan does not refer to any model. `attach` resolves the plan against a model. Two plans with the same digest
    describe the same hooks.

    Iteration yields the hooks in order, `len(plan)` is their number, and `plan[id]` is the hook with that id.

    Args:
        hooks: Hooks of the plan, at most 1024. Each hook must have a unique id.

    Raises:
        PlanError: An element is not a `Hook`, two hooks have the same id, or there are too many hooks.

    Example:
        >>> import tenterhook as th
        >>> plan = th.Plan([th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(1.0, over="hook"))])
        >>> len(plan), plan["clip"].at
        (1, 'grad_final')
    """

    hooks: tuple[Hook, ...] = ()

    def __init__(self, hooks: Iterable[Hook] = ()) -> None:
        if isinstance(hooks, Hook) or not isinstance(hooks, Iterable):
            raise PlanError(
                f"a plan is a list of hooks, but an object of type {type(hooks).__name__} was passed",
                remedy='write [th.Hook("id", on=..., at=..., do=...)]',
            )
        hooks = tuple(hooks)
        object.__setattr__(self, "hooks", hooks)
        if len(hooks) > MAX_HOOKS:
            raise PlanError(f"the plan has {len(hooks)} hooks; the limit is {MAX_HOOKS}")
        seen: set[str] = set()
        for hook in hooks:
            if not isinstance(hook, Hook):
                raise PlanError(f"{hook!r} is not a Hook", remedy='write th.Hook("id", on=..., at=..., do=...)')
            if hook.id in seen:
                raise PlanError("two hooks in the plan have this id", hook=hook.id, remedy="give each hook its own id")
            seen.add(hook.id)

    def _repr_html_(self) -> str:
        rows = [[hook.id, _selectors(hook), hook.at, hook.doing, _when(hook)] for hook in self.hooks]
        title = f"plan: {len(rows)} hook{'s' * (len(rows) != 1)}"
        return TextTable(title, ("hook", "on", "at", "do", "when"), rows).html()

    def __iter__(self) -> Iterator[Hook]:
        return iter(self.hooks)

    def __len__(self) -> int:
        return len(self.hooks)

    def __getitem__(self, id: str) -> Hook:
        for hook in self.hooks:
            if hook.id == id:
                return hook
        raise UnknownHookError.among(id, [hook.id for hook in self.hooks], "plan")

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the canonical JSON text, in hexadecimal.

        Raises:
            PlanError: The plan cannot be written as JSON. See `to_json`.
        """
        import hashlib

        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """Return the plan as canonical JSON text.

        The keys are sorted, and white space and default values are omitted.

        Returns:
            The JSON text, which `Plan.from_json` can read.

        Raises:
            PlanError: The action of a hook is a plain function, which has no registered name.
            PlanFileError: A parameter is not a JSON value, or the text would exceed 64 KiB.

        Example:
            >>> import tenterhook as th
            >>> th.Plan([th.Hook("norms", on="**", at="grad", do=th.stats())]).to_json()
            '{"hooks":[{"at":"grad","do":{"stats":{}},"id":"norms","on":"**"}],"tenterhook":1}'
        """
        from tenterhook.plan import files

        return files.to_json(self.hooks)

    @staticmethod
    def from_json(text: str | bytes) -> Plan:
        """Read a plan from JSON text.

        No code is imported or run: until the plan is attached, an action is only a name with parameters.

        Args:
            text: JSON text, as a string or as UTF-8 bytes, of at most 64 KiB.

        Returns:
            The plan.

        Raises:
            PlanFileError: The text is not a valid plan in JSON.
            PlanError: A hook of the plan is not valid.

        Example:
            >>> import tenterhook as th
            >>> text = '{"tenterhook": 1, "hooks": [{"id": "norms", "on": "**", "at": "grad", "do": "stats"}]}'
            >>> th.Plan.from_json(text)["norms"]
            Hook('norms', on='**', at='grad', do=stats())
        """
        from tenterhook.plan import files

        return Plan(files.from_json(text))

    @staticmethod
    def from_toml(text: str | bytes) -> Plan:
        """Read a plan from TOML text.

        No code is imported or run: until the plan is attached, an action is only a name with parameters.

        Args:
            text: TOML text, as a string or as UTF-8 bytes, of at most 12 KiB.

        Returns:
            The plan.

        Raises:
            PlanFileError: The text is not a valid plan in TOML.
            PlanError: A hook of the plan is not valid.

        Example:
            >>> import tenterhook as th
            >>> th.Plan.from_toml('''
            ... tenterhook = 1
            ... [[hook]]
            ... id = "norms"
            ... on = "**"
            ... at = "grad"
            ... do = "stats"
            ... ''')["norms"]
            Hook('norms', on='**', at='grad', do=stats())
        """
        from tenterhook.plan import files

        return Plan(files.from_toml(text))

    @staticmethod
    def load(path: str | Path) -> Plan:
        """Read a plan from a file.

        Args:
            path: Path to a `.json` or `.toml` file.

        Returns:
            The plan.

        Raises:
            PlanFileError: The file cannot be opened, has an unsupported suffix, or does not contain a valid plan.
            PlanError: A hook of the plan is not valid.

        Example:
            >>> import pathlib, tempfile
            >>> import tenterhook as th
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = pathlib.Path(folder, "plan.toml")
            ...     _ = path.write_text("tenterhook = 1")
            ...     len(th.Plan.load(path))
            0
        """
        from tenterhook.plan import files

        path = Path(path)
        parse, text = files.open_text(path)
        try:
            return Plan(parse(text))
        except PlanError as error:
            error.fact = f"{path}: {error.fact}"
            raise


def _selectors(hook: Hook) -> str:
    return hook.on if isinstance(hook.on, str) else ", ".join(hook.on)


def _when(hook: Hook) -> str:
    """Return the fields of `when` that are not the defaults."""
    defaults = asdict(ALWAYS)
    changed = {name: value for name, value in asdict(hook.when).items() if value != defaults[name]}
    return ", ".join(f"{name}={value!r}" for name, value in changed.items()) or "every step"
