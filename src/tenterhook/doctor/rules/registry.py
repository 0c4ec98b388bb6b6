"""Rules: each produces the findings of one code, and is registered by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Concatenate, Generic, NamedTuple, ParamSpec, TypeVar

from tenterhook.doctor.findings import CODES, Finding, finding
from tenterhook.doctor.observe.hook_record import HookRecord
from tenterhook.rig import Site

P = ParamSpec("P")
A = TypeVar("A", bound="About")


class Subject(NamedTuple):
    """Where a finding points to."""

    hook: str | None = None
    target: str | None = None
    point: str | None = None
    #: of a raw hook, the PyTorch function that registered it
    by: str | None = None
    place: str | None = None
    #: it belongs to a library, or was handled: the finding is no more than a note
    minor: bool = False


class SilentSites(NamedTuple):
    """Sites of one hook of a rig that were due and did not fire."""

    first: Site
    silent: int
    targets: int

    @property
    def evidence(self) -> str:
        return f"due {plural(self.first.due, 'time')}, fired 0: {self.silent} of {self.targets} targets"

    @property
    def some(self) -> bool:
        """True if other sites of the hook fired: then this is no more than a note."""
        return self.silent < self.targets


#: what a rule is asked about: a raw hook, sites of a rig, or something with a place alone
About = HookRecord | SilentSites | Subject


class Words(NamedTuple):
    """What a rule has to say."""

    evidence: str
    #: code to copy
    remedy: str
    as_note: bool = False


#: the rule of each code
RULES: dict[str, Rule[...]] = {}


class Rule(Generic[P]):
    """Produces every finding of one code."""

    def __init__(self, code: str, words: Callable[P, Words | None]) -> None:
        if code not in CODES:
            raise ValueError(f"{code} is not a code of the doctor")
        if code in RULES:
            raise ValueError(f"{code} has a rule already")
        self.code = code
        self.words = words
        RULES[code] = self

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Finding | None:
        """Return the finding, if the rule finds its fault."""
        words = self.words(*args, **kwargs)
        about = args[0]
        assert isinstance(about, HookRecord | SilentSites | Subject)
        return None if words is None else self._finding(about, *words)

    def quote(self, about: About, evidence: str, remedy: str) -> Finding:
        """Return a finding whose evidence somebody else has worded: PyTorch, or an error of ours."""
        return self._finding(about, evidence, remedy)

    def _finding(self, about: About, evidence: str, remedy: str, as_note: bool = False) -> Finding:
        hook, target, point, by, place, minor = subject_of(about)
        return finding(
            self.code,
            evidence,
            remedy,
            hook=hook,
            target=target,
            point=point,
            by=by,
            place=place,
            as_note=as_note or minor,
        )


def rule(code: str) -> Callable[[Callable[Concatenate[A, P], Words | None]], Rule[Concatenate[A, P]]]:
    """Register a function as the rule of a code: it is given what is asked about first, and returns words or None."""

    def register(words: Callable[Concatenate[A, P], Words | None]) -> Rule[Concatenate[A, P]]:
        return Rule(code, words)

    return register


def quoting(code: str) -> Rule[[About]]:
    """Register a rule that only quotes what others have worded."""

    def nothing(about: About) -> None:
        """Say nothing of its own."""

    return Rule(code, nothing)


def subject_of(about: About) -> Subject:
    """Return where a finding about this points to."""
    if isinstance(about, HookRecord):
        return Subject(about.function, about.owner.name, None, about.kind, about.caller.place, about.foreign)
    if isinstance(about, SilentSites):
        return Subject(about.first.hook, about.first.name, about.first.point)
    return about


def found(*findings: Finding | None) -> Iterator[Finding]:
    """Yield the findings that there are."""
    return (one for one in findings if one is not None)


def plural(count: int, thing: str) -> str:
    """Count things in words: `1 step`, `2 steps`."""
    return f"{count} {thing}" + ("" if count == 1 else "s")
