"""Define rules. Each rule is registered under one code and produces the findings with that code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar

from tenterhook.doctor.edits.hook_functions import HookText
from tenterhook.doctor.edits.source import Change, LineText, Source
from tenterhook.doctor.findings import CODES, Finding, finding
from tenterhook.doctor.observe.hook_record import HookRecord
from tenterhook.doctor.patch.recording import Recording
from tenterhook.rig import Site

P = ParamSpec("P")
A = TypeVar("A", bound="About")


class Subject(NamedTuple):
    """The hook or the source line that a finding refers to."""

    hook: str | None = None
    target: str | None = None
    point: str | None = None
    #: the PyTorch function that registered a raw hook
    by: str | None = None
    place: str | None = None
    #: True if the finding is only a note, because the hook belongs to a library or the program caught the error
    minor: bool = False


class SilentSites(NamedTuple):
    """The sites where a rig's hook was due but did not fire."""

    first: Site
    silent: int
    targets: int

    @property
    def evidence(self) -> str:
        return (
            f"the hook was due {plural(self.first.due, 'time')} but never fired on {self.silent} of "
            f"{self.targets} targets"
        )

    @property
    def some(self) -> bool:
        """Return True if the hook fired at other sites; the finding is then only a note."""
        return self.silent < self.targets


#: the first argument of a rule: a raw hook, the silent sites of a rig's hook, or the finding's subject itself
About = HookRecord | SilentSites | Subject


Edit = Callable[[Any], Iterable[Change]]


class Words(NamedTuple):
    """The evidence and the remedy that one finding reports."""

    evidence: str
    #: an instruction, or code to copy; a multi-line remedy is always Python code
    remedy: str
    as_note: bool = False
    #: edits the text of the program, so that the finding carries a patch
    edit: Edit | None = None


#: the rule for each code
RULES: dict[str, Rule[...]] = {}


class Rule(Generic[P]):
    """A rule that produces the findings for one code."""

    def __init__(self, code: str, words: Callable[P, Words | None]) -> None:
        if code not in CODES:
            raise ValueError(f"{code} is not one of the doctor's codes")
        if code in RULES:
            raise ValueError(f"{code} already has a rule")
        self.code = code
        self.words = words
        RULES[code] = self

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Finding | None:
        """Return a finding if the rule detects its problem, otherwise None."""
        words = self.words(*args, **kwargs)
        about = args[0]
        assert isinstance(about, HookRecord | SilentSites | Subject)
        return None if words is None else self._finding(about, *words)

    def quote(self, about: About, evidence: str, remedy: str) -> Finding:
        """Return a finding whose evidence is the text of an error that PyTorch or tenterhook raised."""
        return self._finding(about, evidence, remedy)

    def _finding(
        self, about: About, evidence: str, remedy: str, as_note: bool = False, edit: Edit | None = None
    ) -> Finding:
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
            patch=None if edit is None else _patch(about, edit),
        )


def rule(code: str) -> Callable[[Callable[Concatenate[A, P], Words | None]], Rule[Concatenate[A, P]]]:
    """Register a function as the rule for a code.

    The function takes the subject as its first argument and returns `Words` or None.
    """

    def register(words: Callable[Concatenate[A, P], Words | None]) -> Rule[Concatenate[A, P]]:
        return Rule(code, words)

    return register


def quoting(code: str) -> Rule[[About]]:
    """Register a rule that only quotes errors: `Rule.quote` creates its findings."""

    def nothing(about: About) -> None:
        """Return None, because the rule only quotes errors."""

    return Rule(code, nothing)


def subject_of(about: About) -> Subject:
    """Convert the first argument of a rule to a `Subject`."""
    if isinstance(about, HookRecord):
        return Subject(about.function, about.owner.name, None, about.kind, about.caller.place, about.foreign)
    if isinstance(about, SilentSites):
        return Subject(about.first.hook, about.first.name, about.first.point)
    return about


def _patch(about: About, edit: Edit) -> str | None:
    """Return a change of the program as a unified diff, or None if the text does not have the expected form."""
    file, _, line = (subject_of(about).place or "").rpartition(":")
    text: LineText | None = None
    if isinstance(about, HookRecord):
        source = Source.of(about.code.co_filename) if about.code is not None else None
        function = source.function(about.code) if source is not None and about.code is not None else None
        if source is not None and function is not None and about.reading is not None:
            registered = int(line) if file == source.path else 0
            text = HookText(source, registered, function, about.reading.arguments, about.kind)
    else:
        source = Source.of(file)
        text = LineText(source, int(line)) if source is not None else None
    changes = list(edit(text)) if text is not None else []
    return text.source.diff(changes) or None if text is not None and changes else None


def found(*findings: Finding | None) -> Iterator[Finding]:
    """Yield the findings that are not None."""
    return (one for one in findings if one is not None)


def has_successor(hook: HookRecord, seen: Recording) -> bool:
    """Return True if the program has registered the function again on an object of the same name since it fired."""
    name, since = hook.owner.name.rpartition(".")[2], hook.last or hook.born
    later = (one for one in seen.hooks[hook.number + 1 :] if one.code is hook.code and one.kind == hook.kind)
    return hook.code is not None and any(one.owner.name.endswith(name) and one.born >= since for one in later)


def with_article(noun: str) -> str:
    """Return a noun with its indefinite article, such as `an Adapter`."""
    return f"{'an' if noun[0].lower() in 'aeiou' else 'a'} {noun}"


def plural(count: int, thing: str) -> str:
    """Return a count followed by its noun, such as `1 step` or `2 steps`."""
    return f"{count} {thing}" + ("" if count == 1 else "s")
