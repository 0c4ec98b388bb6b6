"""Selectors: which targets a hook is about.

A pattern is an exact name, a glob (`*` within a part, `**` across parts) or `type:Name`; a leading `!` takes away.
Names are cut into parts by `.` and, for taps, by `:`. The root is `.`; no glob matches it.
Globs run as a bit-parallel automaton: one step for each character of the name, whatever the pattern.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tenterhook.errors import PlanError

ROOT = "."
SEPARATORS = ".:"
MAX_PATTERNS = 1024
MAX_PATTERN_LENGTH = 256


class Glob:
    """One glob, compiled to transition masks over its tokens; bit i means "token i comes next"."""

    __slots__ = ("_across", "_end", "_literals", "_parts", "_start", "_within", "prefix", "steps", "suffix", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        #: characters looked at by the last match
        self.steps = 0
        self._literals: dict[str, int] = {}
        self._within = self._across = self._parts = 0
        size = 0
        i = 0
        while i < len(text):
            bit = 1 << size
            if text.startswith("**", i):
                whole_part = (i == 0 or text[i - 1] in SEPARATORS) and i + 2 < len(text) and text[i + 2] in SEPARATORS
                if whole_part and text[i + 2] == ".":
                    self._parts |= bit  # "**." is any number of parts, none included
                    i += 3
                else:
                    self._across |= bit
                    i += 2
            elif text[i] == "*":
                self._within |= bit
                i += 1
            else:
                self._literals[text[i]] = self._literals.get(text[i], 0) | bit
                i += 1
            size += 1
        self._end = 1 << size
        self._start = self._entered(1)
        self.prefix = text[: text.index("*")]
        self.suffix = text[text.rindex("*") + 1 :].lstrip(SEPARATORS)

    def _entered(self, states: int) -> int:
        """`states` with every token that may match nothing skipped as well."""
        skippable = self._within | self._across | self._parts
        while new := ((states & skippable) << 1) & ~states:
            states |= new
        return states

    def matches(self, name: str) -> bool:
        self.steps = 0
        if not (name.startswith(self.prefix) and name.endswith(self.suffix)):
            return False
        state = self._start
        literals, across, within, parts = self._literals, self._across, self._within, self._parts
        stays = across | within
        for char in name:
            self.steps += 1
            if char in SEPARATORS:
                kept = state & (across | parts)
                advanced = ((state & literals.get(char, 0)) | (state & parts)) << 1
            else:
                kept = state & (across | within | parts)
                advanced = (state & literals.get(char, 0)) << 1
            # A "**." that goes on inside a part is left only at the next separator, so it is not skipped again.
            state = kept | self._entered(advanced) | self._entered((kept & stays) << 1)
            if not state:
                return False
        return bool(state & self._end)


@dataclass(frozen=True, slots=True)
class Selector:
    """A union of patterns, less the ones that begin with `!`."""

    patterns: tuple[str, ...]
    _take: tuple[Glob | str, ...] = field(init=False, repr=False, compare=False)
    _leave: tuple[Glob | str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.patterns:
            raise PlanError("the selector is empty", remedy='name a target, or "**" for every one')
        if len(self.patterns) > MAX_PATTERNS:
            raise PlanError(f"the selector has {len(self.patterns)} patterns, the most is {MAX_PATTERNS}")
        take = [_compiled(p) for p in self.patterns if not p.startswith("!")]
        leave = [_compiled(p[1:]) for p in self.patterns if p.startswith("!")]
        if not take:
            raise PlanError(
                f"the selector {list(self.patterns)} only takes away", remedy='begin it with "**" to take from all'
            )
        object.__setattr__(self, "_take", tuple(take))
        object.__setattr__(self, "_leave", tuple(leave))

    @property
    def exact(self) -> tuple[str, ...]:
        """The patterns that are plain names."""
        return tuple(p for p in self._take if isinstance(p, str) and not p.startswith("type:"))

    def matches(self, name: str, types: Sequence[str] = ()) -> bool:
        """Whether the target of that name, whose class has these qualified names along its MRO, is meant."""
        return _any(self._take, name, types) and not (self._leave and _any(self._leave, name, types))


def _compiled(pattern: str) -> Glob | str:
    if not pattern:
        raise PlanError("the selector has an empty pattern", remedy='the root is "."')
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise PlanError(f"a pattern of {len(pattern)} characters; the most is {MAX_PATTERN_LENGTH}")
    if "***" in pattern:
        raise PlanError(f"the pattern {pattern!r} has three stars in a row", remedy="use * or **")
    if not pattern.isprintable():
        raise PlanError(f"the pattern {pattern!r} has a character that no name has")
    if pattern.startswith("type:"):
        if "*" in pattern or not pattern[5:]:
            raise PlanError(f"the pattern {pattern!r} is not type:Name", remedy='write "type:Linear"')
        return pattern
    return Glob(pattern) if "*" in pattern else pattern


def _any(patterns: Iterable[Glob | str], name: str, types: Sequence[str]) -> bool:
    for pattern in patterns:
        if isinstance(pattern, Glob):
            if name != ROOT and (pattern.text == "**" or pattern.matches(name)):
                return True
        elif pattern.startswith("type:"):
            if any(_same_type(pattern[5:], t) for t in types):
                return True
        elif pattern == name:
            return True
    return False


def _same_type(wanted: str, have: str) -> bool:
    """`Linear` and `torch.nn.Linear` both name `torch.nn.modules.linear.Linear`; only text is compared."""
    path, _, name = wanted.rpartition(".")
    module, _, cls = have.rpartition(".")
    return name == cls and (not path or module == path or module.startswith(path + "."))
