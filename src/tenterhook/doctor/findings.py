"""Define the finding codes, and the classes that store and print findings.

A code is never reused. The title of a code may be reworded, but the meaning of the code does not change.
"""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, overload

from tenterhook.audit.imbalance import TITLES, Severity

#: meaning of the first digit of a code
GROUPS = {
    "TH1": "not installed",
    "TH2": "not fired",
    "TH3": "fired without effect",
    "TH4": "fired too often, or at the wrong time",
    "TH5": "hazards",
    "TH6": "legacy, global and foreign hooks",
    "TH7": "the ledger does not agree with the model",
}


@dataclass(frozen=True, slots=True)
class Code:
    """A finding code, its title, and the severity that its findings have by default."""

    code: str
    title: str
    severity: Severity


_LISTED: tuple[tuple[str, str, Severity], ...] = (
    ("TH101", "the selector matches no target, or not the expected number of targets", "error"),
    ("TH102", "the plan is invalid, for example because of an unknown action or a wrong parameter", "error"),
    ("TH103", "the target is frozen or does not require grad", "error"),
    ("TH104", "the target is not in any of the given optimizers", "error"),
    ("TH105", "the hook's signal is not available for this target", "error"),
    ("TH106", "the register function does not exist on this object", "error"),
    ("TH107", "a hook handle was saved and loaded, which does not restore the hook", "error"),
    ("TH108", "the model was copied, and the copy has its own copy of the hook", "error"),
    ("TH109", "no hook was registered", "warning"),
    ("TH110", "the saved hooks cannot be restored", "error"),
    ("TH111", "the hook is registered on only some of the ranks", "error"),
    ("TH112", "the hook becomes part of compiled code", "note"),
    ("TH113", "the test of a loop leaves out most weights of the model", "note"),
    ("TH201", "the hook was registered after the forward or backward pass that should have called it", "error"),
    ("TH202", "the loss does not depend on the hook's target", "error"),
    ("TH203", "the parameter was frozen during the backward pass", "error"),
    ("TH204", "the forward pass ran with gradients disabled", "error"),
    ("TH205", "the parameter was replaced, and the hook is still on the old one", "error"),
    ("TH206", "a different model object ran instead of the hooked model", "error"),
    ("TH207", "the module's parameters were used, but the module was not called", "error"),
    ("TH208", "the module returns neither a tensor nor a tuple of tensors, so its backward hook cannot fire", "error"),
    ("TH209", "the model was compiled before the hook was registered", "error"),
    ("TH210", "autograd.grad and backward(inputs=...) do not run this hook", "error"),
    ("TH211", "the hook was removed before it could fire", "warning"),
    ("TH212", "the optimizer's step was skipped", "warning"),
    ("TH213", "the module, the tap or the optimizer step never ran", "warning"),
    ("TH214", "no backward pass ran", "note"),
    ("TH215", "the hook waits for a phase, a step or a trip that did not occur", "note"),
    ("TH216", "the gradient that reached the hook was None", "warning"),
    ("TH217", "the hooked tensor was freed before the backward pass", "error"),
    ("TH218", "no input of a reentrant checkpoint requires grad, so its parameters get no gradients", "error"),
    ("TH219", "torch.func cannot run a module that has a backward hook", "error"),
    ("TH220", "functional_call replaced the module's parameters with other tensors", "error"),
    ("TH221", "torch.compile(fullgraph=True) cannot run this hook", "error"),
    ("TH222", "FSDP2 shards the parameter, so a tensor hook on it never fires", "error"),
    ("TH223", "FSDP2 does not call the hook in a backward pass without gradient sync", "warning"),
    ("TH224", "some compiled code contains the hook and some does not", "error"),
    ("TH225", "the compiler removed an operation from the hook, because the operation's result is unused", "error"),
    ("TH226", "compiled code returned the tensor but computes no gradient for it", "error"),
    ("TH227", "the module was replaced, and the hook is still on the old one", "error"),
    ("TH228", "another optimizer steps the parameters, and the hook is still on the old one", "error"),
    ("TH229", "another module took the name of the hooked module, and contains it", "warning"),
    ("TH230", "the hook was called only while the model was traced", "warning"),
    (
        "TH231",
        "the hook returns early while torch.compile traces it, so the compiled code leaves it out",
        "error",
    ),
    ("TH232", "no state dict was saved or loaded through the hooked module", "note"),
    ("TH233", "a hook is on a node of the graph, which PyTorch may free or replace", "note"),
    ("TH234", "the module ran in another process, or not at all", "note"),
    ("TH235", "the module raised an error, so its forward hook did not run", "warning"),
    ("TH236", "the saved-tensors hooks packed nothing, because another thread runs the model", "warning"),
    ("TH237", "load_state_dict(strict=False) left out parameters whose keys have another prefix", "warning"),
    ("TH238", "torch.fx leaves out the hooks of the model that it traces", "note"),
    ("TH301", "the hook computes a new value but returns None", "error"),
    ("TH302", "the hook returns the values that it received", "note"),
    ("TH303", "grad_input is not the gradient of the module's own parameters", "note"),
    ("TH304", "the gradient is zero, but the optimizer still changes the parameter", "warning"),
    ("TH305", "the optimizer divides by the gradient's magnitude, so a constant factor has no effect", "warning"),
    ("TH306", "norm clipping runs after the hook and cancels the hook's factor", "warning"),
    ("TH307", "the tensor is not a leaf, so its .grad stays None", "warning"),
    ("TH308", "the gradient was cleared between the hook and the step", "error"),
    ("TH309", "the limit was applied to a gradient that is still multiplied by the loss scale", "warning"),
    ("TH310", "the optimizers that step do not contain the parameter", "warning"),
    ("TH311", "the hook returned a value without its graph", "warning"),
    ("TH312", "PyTorch ignores what the hook returns", "error"),
    ("TH313", "the backward hook returns a new grad_input without the derivative of the module", "note"),
    ("TH314", "the hook changes the output after the model has computed its loss", "warning"),
    ("TH315", "the communication hook replaces the reduction of DDP, including its average", "note"),
    ("TH316", "the loss does not use the part of the output that the hook changes", "warning"),
    ("TH401", "the hook runs in every backward pass, but the optimizer steps only after several passes", "warning"),
    ("TH402", "the module was called several times, so its hook fires several times in one backward pass", "note"),
    ("TH403", "the same function is registered more than once on one target", "warning"),
    ("TH404", "an activation checkpoint runs the forward hook a second time", "warning"),
    ("TH405", "the tensor has two names, and the hook is registered under both", "warning"),
    ("TH406", "the hook runs in a backward pass with create_graph=True and again in the next backward pass", "warning"),
    ("TH407", "no input requires grad, so the hook fires before the parameters have their gradients", "note"),
    ("TH408", "the tensor was changed in place after the hook was registered", "warning"),
    ("TH409", "a hook is registered again and again, and the earlier ones stay registered", "error"),
    ("TH410", "the hook was removed between the forward and backward passes but still fires", "note"),
    ("TH411", "the optimizer steps inside the backward pass, so gradient clipping finds no gradients", "warning"),
    ("TH412", "the hook receives this rank's gradient, before DDP averages the gradients over the ranks", "warning"),
    ("TH413", "a global module hook also fires for the wrapper that torch.compile puts around the model", "warning"),
    ("TH414", "the tensor has several uses, and the hook changes the gradient of all of them", "warning"),
    ("TH415", "the step hook fires twice in one step", "warning"),
    ("TH416", "the hooks append in the order of the backward pass, from the last layer to the first", "note"),
    ("TH417", "the module is a part of two models, and the hook fires for both", "note"),
    ("TH418", "the hook reads .grad before the gradient of this backward pass is added to it", "warning"),
    ("TH419", "the step pre-hook runs before the closure, which computes the gradients", "warning"),
    ("TH420", "some of the hooks that a line registered were removed, and the others still fire", "note"),
    ("TH421", "the hook steps an optimizer in the backward pass of another loss, too", "warning"),
    ("TH422", "the gradient of the parameter reaches the hook in parts", "warning"),
    ("TH423", "the scheduler belongs to an optimizer that takes no step with gradients", "note"),
    ("TH424", "the hook fired before the training began, too", "note"),
    ("TH425", "the hook counts forward passes, and a step has several of them", "note"),
    ("TH426", "with a cache, later calls receive only the new tokens", "note"),
    ("TH427", "no hook can act between the time steps of a fused recurrent layer", "note"),
    ("TH428", "the hook steps an optimizer in each backward pass, but the program accumulates gradients", "note"),
    ("TH429", "the hook counts or lists its calls, and two losses call it", "note"),
    ("TH430", "the hook was removed after its first use, and the program uses its values again", "note"),
    ("TH501", "the hook changes the gradient in place", "error"),
    ("TH502", "the hook holds a reference to its own tensor, so neither is ever freed", "warning"),
    ("TH503", "the hook keeps values and their graphs alive", "warning"),
    ("TH504", "every backward pass retains its graph", "warning"),
    ("TH505", "the hook waits for the device each time it fires", "note"),
    ("TH506", "the hook keeps a reference to a value that was changed in place later", "warning"),
    ("TH507", "the hook raised an error, or does not accept the arguments that PyTorch passes", "error"),
    ("TH508", "the module has a backward hook, so its inputs and outputs cannot be changed in place", "error"),
    ("TH509", "a hook that changes the forward pass was removed before a checkpoint recomputed that pass", "error"),
    ("TH510", "the hook failed and was muted", "error"),
    ("TH511", "the hook returned an invalid value", "error"),
    ("TH512", "the program read only this rank's part of a DTensor result", "warning"),
    ("TH513", "the hook changes the parameter before its gradient is reduced, so the replicas diverge", "error"),
    ("TH514", "DDP does not reduce gradients of parameters that were added or unfrozen after DDP was created", "error"),
    ("TH515", "the hook causes the model to be recompiled at each call", "warning"),
    ("TH516", "the hook breaks the graph of the compiled model", "warning"),
    ("TH517", "the hook causes the recompilation limit to be reached, which is an error with fullgraph=True", "error"),
    ("TH518", "the hook on a compiled module is compiled separately, and recompiled at each call", "warning"),
    ("TH519", "recorded values were lost", "warning"),
    ("TH520", "several hooks store their values under the same key", "warning"),
    ("TH521", "the hook fired several times in one pass, and only its last value is kept", "warning"),
    ("TH522", "the hook stored None instead of a value", "warning"),
    ("TH523", "values of training and evaluation are stored together", "note"),
    ("TH524", "the hook does not receive the keyword arguments of the module", "warning"),
    ("TH525", "the hook uses the parameter in place of its gradient", "warning"),
    ("TH526", "the value that the hook returned replaced the output, probably by accident", "warning"),
    ("TH527", "the pre-hook returned fewer arguments than the module was given", "warning"),
    ("TH528", "the state-dict hook ignores the prefix of the keys", "warning"),
    ("TH529", "the hook changes a tensor in place that the program also uses elsewhere", "warning"),
    ("TH530", "the output is a tensor, and the hook takes its first sample for its first element", "warning"),
    ("TH531", "the hook returns the values of the output in another order", "warning"),
    ("TH532", "the stored value cannot be used outside torch.func or inference_mode", "note"),
    ("TH533", "the model continued with another value than the stored one", "note"),
    ("TH534", "the hook adds in 16-bit precision", "note"),
    ("TH535", "the stored value has no graph, because a reentrant checkpoint computed it", "note"),
    ("TH536", "the pre-hook overwrites the weights, so it can undo what the optimizer's steps change", "note"),
    ("TH537", "the unpack hook returned another tensor than the one that was packed", "error"),
    ("TH538", "the hook computed a number that is not finite from finite values", "warning"),
    ("TH539", "the hook returned a tensor of another shape or type than the output", "warning"),
    ("TH540", "several threads store their values in one place", "note"),
    ("TH541", "the model was in training mode while gradients were disabled", "note"),
    ("TH542", "vmap calls the hook with one sample", "note"),
    ("TH543", "the rows of a PackedSequence are ordered by time step", "note"),
    ("TH544", "the batch has two equal halves, and the hook treats them alike", "note"),
    ("TH545", "the loss is a mean, so the gradient of each sample is divided by the number of samples", "note"),
    ("TH546", "the hook stores values under the id of a tensor, which another tensor may get", "note"),
    ("TH547", "each rank stores the values of its own batches", "note"),
    ("TH548", "a variable no longer refers to the container in which the hook stores its values", "warning"),
    ("TH549", "a term of the loss has no graph, and the hook stores values without theirs", "note"),
    ("TH550", "the pre-hook computes a weight again, so what the program wrote to it is lost", "warning"),
    ("TH551", "the hooks of a loop read its variable when they fire, and find the last value", "warning"),
    ("TH552", "the list keeps the values of all passes, and the program reads its first item", "note"),
    ("TH553", "the pack hook looks for tensors by their identity, and receives other objects", "note"),
    ("TH601", "the legacy module backward hook receives the gradients of the wrong tensors", "error"),
    ("TH602", "a hook is registered on every module or every optimizer in the process", "note"),
    ("TH603", "the program evaluates text as code to choose what to hook", "error"),
    ("TH604", "the hook's function was pickled", "error"),
    ("TH605", "the hook was removed by code that did not register it", "warning"),
    ("TH606", "a new hook replaced one of the loaded model's hooks", "error"),
    ("TH607", "the method that removes a hook is named but not called", "error"),
    ("TH608", "the doctor could not observe everything that hooks did", "warning"),
)

_IMBALANCES = [(code, title, severity) for code, (title, severity) in TITLES.items()]

CODES = {code: Code(code, title, severity) for code, title, severity in (*_LISTED, *_IMBALANCES)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A problem with a hook: what is wrong, the evidence, and how to fix it.

    `th.check` and `th.examine` create findings. For each code, a page in the documentation shows a program with the
    problem and the corrected program. Use `print` to show a finding as text.

    Args:
        code: Code of the problem, such as `"TH301"`.
        evidence: Observation that shows the problem.
        remedy: How to fix the problem. A multi-line remedy is Python code to copy.
        hook: Id of a rig's hook, or function name of a raw hook.
        target: Name of the parameter, module or tensor that has the hook.
        point: Point of a rig's hook, such as `"grad_final"`.
        by: PyTorch function that registered a raw hook, such as `"register_hook"`.
        place: `file:line` of the registration, or of the call that failed.
        severity: `"error"`, `"warning"` or `"note"`.
        patch: Change of the program that corrects the problem, as a unified diff for `git apply -p0`, or None.

    Example:
        >>> import tenterhook as th
        >>> from torch import nn
        >>> hook = th.Hook("clip", on="wieght", at="grad", do=th.clip_value(1.0))
        >>> finding = th.check(nn.Linear(2, 1), hook)[0]
        >>> finding.code, finding.severity, finding.hook
        ('TH101', 'error', 'clip')
    """

    code: str
    evidence: str
    remedy: str
    hook: str | None = None
    target: str | None = None
    point: str | None = None
    by: str | None = None
    place: str | None = None
    severity: Severity = "note"
    patch: str | None = None

    @property
    def title(self) -> str:
        """Return the title of the code, which is the same for all findings with this code."""
        return CODES[self.code].title

    def __str__(self) -> str:
        where = [f"hook {self.hook!r}"] if self.hook else []
        where += [f"at {self.point}"] if self.point else []
        where += [f"by {self.by}"] if self.by else []
        where += [f"on {self.target!r}"] if self.target else []
        where += [f"({from_here(self.place)})"] if self.place else []
        lines = [f"{self.code} {self.severity}: {self.title}"]
        lines += [f"  where:    {' '.join(where)}"] if where else []
        lines += _laid_out("evidence:", textwrap.wrap(self.evidence, 100, break_long_words=False))
        return "\n".join([*lines, *_laid_out("remedy:", self.remedy.split("\n"))])


def from_here(place: str) -> str:
    """Return a place or a path. If its file is inside the working directory, make the path relative."""
    try:
        return os.path.relpath(place) if place.startswith(os.getcwd() + os.sep) else place
    except OSError:  # the working directory no longer exists
        return place


def _laid_out(head: str, lines: list[str]) -> list[str]:
    """Put a heading before the first line and align the other lines with it."""
    return [f"  {head if not number else '':9} {line}" for number, line in enumerate(lines)]


def read_findings(text: str) -> list[Finding]:
    """Read the findings that `Findings.to_json` wrote."""
    rows = json.loads(text)["findings"]
    return [Finding(**{name: value for name, value in row.items() if name != "title"}) for row in rows]


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
    patch: str | None = None,
) -> Finding:
    """Create a finding with the severity of its code, or with the severity `"note"` if `as_note` is true."""
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
        patch=patch,
    )


_ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}


class Findings(Sequence[Finding]):
    """A sequence that holds the findings of a check or an exam, ordered by severity.

    Errors come first, then warnings, then notes. Findings of the same severity keep their original order.
    Equal findings appear only once. Use `print` to show all findings as text.

    Args:
        found: Findings in the order in which they were created.

    Example:
        >>> import tenterhook as th
        >>> from torch import nn
        >>> hook = th.Hook("clip", on="wieght", at="grad", do=th.clip_value(1.0))
        >>> findings = th.check(nn.Linear(2, 1), hook)
        >>> findings.codes, findings.exit_code
        (['TH101'], 1)
    """

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
        """Return the codes of the findings, in the order of the findings."""
        return [f.code for f in self._found]

    @property
    def grave(self) -> list[Finding]:
        """Return the errors and warnings, without the notes."""
        return [f for f in self._found if f.severity != "note"]

    @property
    def patch(self) -> str:
        """Return the patches of the findings, each once, as one text for `git apply -p0`."""
        return "".join(dict.fromkeys(f.patch for f in self._found if f.patch))

    @property
    def exit_code(self) -> int:
        """Return 1 if there is an error or a warning, otherwise 0."""
        return int(bool(self.grave))

    def to_json(self) -> str:
        """Convert the findings to JSON.

        Returns:
            A JSON object with the format version under `"tenterhook"` and the list of findings under `"findings"`.
            Each entry of the list contains the fields and the title of one `Finding`.

        Example:
            >>> import json
            >>> import tenterhook as th
            >>> from torch import nn
            >>> hook = th.Hook("clip", on="wieght", at="grad", do=th.clip_value(1.0))
            >>> json.loads(th.check(nn.Linear(2, 1), hook).to_json())["findings"][0]["code"]
            'TH101'
        """
        rows: list[dict[str, Any]] = [{**asdict(f), "title": f.title} for f in self._found]
        return json.dumps({"tenterhook": 1, "findings": rows}, indent=2)

    def __repr__(self) -> str:
        return "\n".join(map(str, self._found)) or "no findings"

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(repr(self))}</pre>"
