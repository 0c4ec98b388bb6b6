"""Select the targets of a hook by patterns.

A pattern is an exact name, a glob (`*` within a part of a name, `**` across parts) or `type:Name`. A leading `!`
excludes the targets that the pattern matches. `.` separates the parts of a name, and `:` precedes the name of a tap.
The root module is named `.`, and no glob matches it.

A glob is matched by a bit-parallel automaton, which takes at most one step per character of the name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tenterhook.errors import PlanError

ROOT = "."
SEPARATORS = ".:"
MAX_PATTERNS = 1024
MAX_PATTERN_LENGTH = 256
#: maximum number of prefixes that a glob caches, and maximum length of a cached prefix
MAX_KNOWN = 4096
MAX_PREFIX = 256


class Glob:
    """A glob that is matched against names.

    The glob is compiled into bit masks over its tokens. If bit i of a state is set, token i may come next.
    """

    __slots__ = (
        "_across",
        "_end",
        "_known",
        "_last",
        "_literals",
        "_parts",
        "_start",
        "_tail",
        "_within",
        "prefix",
        "steps",
        "suffix",
        "text",
        "work",
    )

    def __init__(self, text: str) -> None:
        self.text = text
        #: number of characters that the last match examined
        self.steps = 0
        #: number of characters that all matches examined
        self.work = 0
        self.prefix = text[: text.index("*")]
        self.suffix = text[text.rindex("*") + 1 :].lstrip(SEPARATORS)
        #: state after each cached prefix, which ends in a dot; names in the same module share a prefix
        self._known: dict[str, int] = {}
        #: 0 until the first match compiles the glob, because a plan may have thousands of globs that are never used
        self._end = 0

    def _compile(self) -> None:
        text = self.text
        self._literals: dict[str, int] = {}
        self._within = self._across = self._parts = 0
        #: bit of the last "**" if only plain text follows it; from there on, only the end of the name matters
        self._last = 0
        size = i = tail = 0
        while i < len(text):
            bit = 1 << size
            if text.startswith("**", i):
                whole_part = (i == 0 or text[i - 1] in SEPARATORS) and i + 2 < len(text) and text[i + 2] in SEPARATORS
                if whole_part and text[i + 2] == ".":
                    self._parts |= bit  # "**." matches any number of parts, including none
                    i += 3
                else:
                    self._across |= bit
                    i += 2
                self._last, tail = bit, i
            elif text[i] == "*":
                self._within |= bit
                self._last = 0
                i += 1
            else:
                self._literals[text[i]] = self._literals.get(text[i], 0) | bit
                i += 1
            size += 1
        self._tail = text[tail:]
        self._end = 1 << size
        self._start = self._entered(1)

    def _entered(self, states: int) -> int:
        """Return `states` and the states that are reached by skipping tokens that can match an empty string."""
        skippable = self._within | self._across | self._parts
        while new := ((states & skippable) << 1) & ~states:
            states |= new
        return states

    def matches(self, name: str) -> bool:
        """Return True if the glob matches the whole name."""
        self.steps = 0
        if not (name.startswith(self.prefix) and name.endswith(self.suffix)):
            return False
        if not self._end:
            self._compile()
        state, at = self._begun(name)
        if state & self._last:
            return self._ends(name, at)
        literals, across, within, parts = self._literals, self._across, self._within, self._parts
        stays = across | within
        self.steps = len(name) - at
        self.work += self.steps
        for i in range(at, len(name)):
            char = name[i]
            if char in SEPARATORS:
                kept = state & (across | parts)
                advanced = ((state & literals.get(char, 0)) | (state & parts)) << 1
            else:
                kept = state & (across | within | parts)
                advanced = (state & literals.get(char, 0)) << 1
            # A "**." inside a part can end only at the next separator, so it must not be skipped here.
            state = kept | self._entered(advanced) | self._entered((kept & stays) << 1)
            if not state:
                return False
            if char == "." and i < MAX_PREFIX:
                if len(self._known) >= MAX_KNOWN:
                    self._known.clear()
                self._known[name[: i + 1]] = state
            if state & self._last:
                return self._ends(name, i + 1)
        return bool(state & self._end)

    def _ends(self, name: str, at: int) -> bool:
        """Return True if the last "**" and the text after it match the name from position `at`."""
        if self._last & self._across:
            return len(name) - at >= len(self._tail) and name.endswith(self._tail)
        rest = name[at:]
        return rest == self._tail or (rest.endswith(self._tail) and rest[-len(self._tail) - 1] in SEPARATORS)

    def _begun(self, name: str) -> tuple[int, int]:
        """Return the state and the position at which matching starts: after the longest cached prefix, or at 0."""
        cut = len(name)
        for _ in range(3):
            cut = name.rfind(".", 0, cut)
            state = self._known.get(name[: cut + 1]) if 0 < cut < MAX_PREFIX else None
            if state is not None:
                return state, cut + 1
        return self._start, 0


@dataclass(frozen=True, slots=True)
class Selector:
    """A selector of the targets that match a pattern, except those that match a pattern with a leading `!`."""

    patterns: tuple[str, ...]
    _take: tuple[Glob | str, ...] = field(init=False, repr=False, compare=False)
    _leave: tuple[Glob | str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.patterns:
            raise PlanError("the selector is empty", remedy='name a target, or write "**" for all targets')
        if len(self.patterns) > MAX_PATTERNS:
            raise PlanError(f"the selector has {len(self.patterns)} patterns; the limit is {MAX_PATTERNS}")
        take = [_compiled(p) for p in self.patterns if not p.startswith("!")]
        leave = [_compiled(p[1:]) for p in self.patterns if p.startswith("!")]
        if not take:
            raise PlanError(
                f"the selector {list(self.patterns)} only excludes targets",
                remedy='add a pattern that includes targets, such as "**"',
            )
        object.__setattr__(self, "_take", tuple(take))
        object.__setattr__(self, "_leave", tuple(leave))

    @property
    def exact(self) -> tuple[str, ...]:
        """Return the patterns that are exact names."""
        return tuple(p for p in self._take if isinstance(p, str) and not p.startswith("type:"))

    @property
    def work(self) -> int:
        """Return the number of characters of names that the globs have examined so far."""
        return sum(glob.work for glob in (*self._take, *self._leave) if isinstance(glob, Glob))

    def matches(self, name: str, types: Sequence[str] = ()) -> bool:
        """Return True if the target is selected.

        `types` contains the qualified names of the target's class and of its base classes.
        """
        return _any(self._take, name, types) and not (self._leave and _any(self._leave, name, types))


def _compiled(pattern: str) -> Glob | str:
    if not pattern:
        raise PlanError(
            "the selector has an empty pattern",
            remedy='write "**" for everything, or a name; the root module is ".", at points of modules such as output',
        )
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise PlanError(f"a pattern has {len(pattern)} characters; the limit is {MAX_PATTERN_LENGTH}")
    if "***" in pattern:
        raise PlanError(f"the pattern {pattern!r} has three stars in a row", remedy="use * or **")
    if not pattern.isprintable():
        raise PlanError(f"the pattern {pattern!r} contains a nonprintable character")
    if pattern.startswith("type:"):
        if "*" in pattern or not pattern[5:]:
            raise PlanError(f"the pattern {pattern!r} does not have the form type:Name", remedy='write "type:Linear"')
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
    """Compare class names as text: `Linear` and `torch.nn.Linear` both match `torch.nn.modules.linear.Linear`."""
    path, _, name = wanted.rpartition(".")
    module, _, cls = have.rpartition(".")
    return name == cls and (not path or module == path or module.startswith(path + "."))
