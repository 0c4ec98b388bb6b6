"""Findings: what can be wrong with a hook. A closed list; a code keeps its meaning for ever."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, overload

Severity = Literal["error", "warning", "note"]

#: what the first digit says
GROUPS = {
    "TH1": "not installed",
    "TH2": "not fired",
    "TH3": "fired without effect",
    "TH4": "fired too often, or at the wrong moment",
    "TH5": "danger",
    "TH6": "other people's hooks",
}


@dataclass(frozen=True, slots=True)
class Code:
    code: str
    title: str
    severity: Severity


_LISTED: tuple[tuple[str, str, Severity], ...] = (
    ("TH101", "the selector names nothing on this model, or another number than expected", "error"),
    ("TH102", "the plan or its action is wrong: an unknown name, a parameter that does not fit", "error"),
    ("TH103", "the target is frozen, or was made without grad", "error"),
    ("TH104", "the target is in no optimizer that was given", "error"),
    ("TH105", "the signal cannot be had here", "error"),
    ("TH106", "the register function does not exist", "error"),
    ("TH107", "a handle was saved and loaded: it restores nothing", "error"),
    ("TH108", "the model was copied, and the copy carries a hook of its own", "error"),
    ("TH109", "no hook was registered at all", "note"),
    ("TH110", "the saved hooks do not fit", "error"),
    ("TH111", "the hook is on some ranks, and not on others", "error"),
    ("TH112", "compiled code makes room for the hook", "note"),
    ("TH201", "registered too late: what it waits for had already run", "error"),
    ("TH202", "the hooked tensor is not on the way to the loss", "error"),
    ("TH203", "the parameter was frozen when the backward ran", "error"),
    ("TH204", "the forward ran without grad", "error"),
    ("TH205", "the parameter was replaced, and the hook stayed on the old one", "error"),
    ("TH206", "another model object ran", "error"),
    ("TH207", "the module was not called, though its parameters were used", "error"),
    ("TH208", "the output is no tensor or tuple of tensors, so a backward hook cannot fire", "error"),
    ("TH209", "the model was compiled before the hook came", "error"),
    ("TH210", "autograd.grad and backward(inputs=...) do not run this hook", "error"),
    ("TH211", "removed before it could fire", "warning"),
    ("TH212", "the optimizer's step was skipped", "warning"),
    ("TH213", "the module, or the tap, was never run", "warning"),
    ("TH214", "nothing ran backward", "note"),
    ("TH215", "it waits for a phase, a step or a trip that did not come", "note"),
    ("TH216", "it was reached, and the gradient was None", "warning"),
    ("TH217", "the hooked tensor was gone before the backward: its name was given to another", "error"),
    ("TH218", "a reentrant checkpoint had no input that requires grad, so nothing inside gets a gradient", "error"),
    ("TH219", "torch.func cannot run a module that has a backward hook", "error"),
    ("TH220", "functional_call ran the module with other tensors", "error"),
    ("TH221", "torch.compile(fullgraph=True) cannot run this hook", "error"),
    ("TH222", "FSDP2 shards the parameter, and a tensor hook on it never fires", "error"),
    ("TH223", "FSDP2 ran backward without gradient sync, and does not call the hook then", "warning"),
    ("TH224", "it is in code that was compiled since it came, and not in what was compiled before", "error"),
    ("TH225", "the compiler left out what the hook calls, because nobody uses the result", "error"),
    ("TH226", "the tensor came out of compiled code, which gives no gradient for it", "error"),
    ("TH301", "a new gradient or value was computed, and nothing returned", "error"),
    ("TH302", "what was returned equals what was given", "note"),
    ("TH303", "grad_input is not the gradient of the module's own parameters", "note"),
    ("TH304", "the gradient is zero, and the optimizer moves the parameter all the same", "warning"),
    ("TH305", "the optimizer divides by the gradient's size, so a factor has no effect", "warning"),
    ("TH306", "clipping by the norm comes after, and takes the factor out again", "warning"),
    ("TH307", "the tensor is no leaf: its .grad stays None", "warning"),
    ("TH308", "the gradient was cleared between the hook and the step", "error"),
    ("TH309", "the limit was applied to a gradient that is still multiplied by the loss scale", "warning"),
    ("TH310", "no optimizer that steps holds the parameter", "warning"),
    ("TH401", "it acts on each backward, and several backwards make one step", "warning"),
    ("TH402", "the module runs several times in one backward", "note"),
    ("TH403", "the same function is registered twice on one target", "warning"),
    ("TH404", "an activation checkpoint runs the forward hook a second time", "note"),
    ("TH405", "the tensor has two names, and the hook is on it under both", "warning"),
    ("TH406", "a pass with create_graph and the backward after it both run it", "warning"),
    ("TH407", "no input requires grad, so it fires before the parameters have their gradients", "note"),
    ("TH408", "the tensor was changed in place after the hook was put on", "warning"),
    ("TH409", "a hook is added again and again, and none removed", "error"),
    ("TH410", "it was removed between forward and backward, and fires all the same", "note"),
    ("TH411", "the optimizer steps inside the backward, so clipping finds no gradient", "warning"),
    ("TH412", "it has this rank's gradient, before DDP takes the mean over the ranks", "warning"),
    ("TH413", "a hook on every module fires once more for what torch.compile puts around the model", "warning"),
    ("TH501", "the hook changes the gradient in place", "error"),
    ("TH502", "the hook holds the tensor that it is on, and neither is ever freed", "warning"),
    ("TH503", "the hook keeps values together with their graph", "warning"),
    ("TH504", "every backward retains its graph", "warning"),
    ("TH505", "the hook waits for the device each time it fires", "note"),
    ("TH506", "what the hook keeps is the gradient itself, which was written over since", "warning"),
    ("TH507", "the hook raised, or cannot be called as PyTorch calls it", "error"),
    ("TH508", "a backward hook and an operation in place exclude each other", "error"),
    ("TH509", "a hook that changes the forward was gone when its checkpoint recomputed", "error"),
    ("TH510", "the hook failed, and was muted", "error"),
    ("TH511", "the hook returned what cannot be taken", "error"),
    ("TH512", "the number that was read is of this rank's part of a DTensor", "warning"),
    ("TH513", "the hook changes the parameter before its gradient is reduced, and the replicas drift apart", "error"),
    ("TH514", "DDP does not reduce the gradient: the parameter is not one that it was made with", "error"),
    ("TH515", "the model is compiled anew for the hook, call after call", "warning"),
    ("TH516", "the hook breaks the graph of the compiled model", "warning"),
    ("TH517", "the hook used up the compiler's recompilations, and fullgraph=True makes that an error", "error"),
    ("TH518", "the hook on a compiled module is compiled by itself, call after call", "warning"),
    ("TH601", "the legacy module backward hook gives other gradients than it says", "error"),
    ("TH602", "a hook on every module of the process", "note"),
    ("TH603", "text is evaluated as code to find what to hook", "error"),
    ("TH604", "the hook's function was pickled", "error"),
    ("TH605", "taken off by somebody who did not put it on", "warning"),
    ("TH606", "a new hook took the place of a loaded one", "error"),
)

CODES = {code: Code(code, title, severity) for code, title, severity in _LISTED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong: what shows it, and what to write instead."""

    code: str
    evidence: str
    #: code to copy
    remedy: str
    hook: str | None = None
    target: str | None = None
    point: str | None = None
    #: of a raw hook, the PyTorch function that registered it
    by: str | None = None
    #: file:line of the registration, or of the call that failed
    place: str | None = None
    severity: Severity = "note"

    @property
    def title(self) -> str:
        return CODES[self.code].title

    def __str__(self) -> str:
        where = [f"hook {self.hook!r}"] if self.hook else []
        where += [f"at {self.point}"] if self.point else []
        where += [f"by {self.by}"] if self.by else []
        where += [f"on {self.target!r}"] if self.target else []
        where += [f"({_from_here(self.place)})"] if self.place else []
        lines = [f"{self.code} {self.severity}: {self.title}"]
        lines += [f"  where:    {' '.join(where)}"] if where else []
        lines += _laid_out("evidence:", textwrap.wrap(self.evidence, 100, break_long_words=False))
        return "\n".join([*lines, *_laid_out("remedy:", self.remedy.split("\n"))])


def _from_here(place: str) -> str:
    """As one would type it."""
    try:
        return os.path.relpath(place) if place.startswith(os.getcwd() + os.sep) else place
    except OSError:  # the working directory is gone
        return place


def _laid_out(head: str, lines: list[str]) -> list[str]:
    return [f"  {head if not number else '':9} {line}" for number, line in enumerate(lines)]


def finding(
    code: str,
    evidence: str,
    remedy: str,
    *,
    hook: str | None = None,
    target: str | None = None,
    point: str | None = None,
    by: str | None = None,
    place: str | None = None,
    as_note: bool = False,
) -> Finding:
    """Make a finding with the severity that its code has, or as a note."""
    return Finding(
        code=code,
        evidence=evidence,
        remedy=remedy,
        hook=hook,
        target=target,
        point=point,
        by=by,
        place=place,
        severity="note" if as_note else CODES[code].severity,
    )


_ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}


class Findings(Sequence[Finding]):
    """The gravest first; of one gravity, in the order they were made."""

    def __init__(self, found: Iterable[Finding]) -> None:
        self._found = sorted(dict.fromkeys(found), key=lambda f: _ORDER[f.severity])

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> list[Finding]: ...
    def __getitem__(self, index: int | slice) -> Finding | list[Finding]:
        return self._found[index]

    def __len__(self) -> int:
        return len(self._found)

    @property
    def codes(self) -> list[str]:
        return [f.code for f in self._found]

    @property
    def grave(self) -> list[Finding]:
        """Errors and warnings."""
        return [f for f in self._found if f.severity != "note"]

    @property
    def exit_code(self) -> int:
        """1 if something is an error or a warning."""
        return int(bool(self.grave))

    def to_json(self) -> str:
        rows: list[dict[str, Any]] = [{**asdict(f), "title": f.title} for f in self._found]
        return json.dumps({"tenterhook": 1, "findings": rows}, indent=2)

    def __repr__(self) -> str:
        return "\n".join(map(str, self._found)) or "no findings"

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(repr(self))}</pre>"
