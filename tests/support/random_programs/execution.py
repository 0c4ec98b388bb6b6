"""Execute a program on a model with a rig and on its twin, and compare the two after every operation."""

from __future__ import annotations

import copy
import math
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.checkpoint import CheckpointError

import tenterhook as th
from tests.support.random_programs.hooks import MODULE, HookSpec, norm
from tests.support.random_programs.model import Net, named_parameters
from tests.support.random_programs.operations import Op, perform
from tests.support.random_programs.oracle import Twin
from tests.support.random_programs.programs import Program
from tests.support.random_programs.sides import Side, build_optimizers

#: the code, the hook and the target of a finding
Found = tuple[str, str | None, str | None]

PACKAGE = str(Path(th.__file__).parent)

#: findings that say nothing about a hook that did not do what it should
ADVICE = frozenset({
    "TH109", "TH112", "TH214", "TH215", "TH301", "TH302", "TH303", "TH304", "TH305", "TH306", "TH401", "TH402", "TH404",
    "TH407",
})  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """A difference between the two sides: a word for it, a text, and the names of what differs, if they are known."""

    about: str
    text: str
    names: frozenset[str] | None = None


@dataclass(frozen=True)
class Outcome:
    """Describe how a program ended.

    Args:
        kind: "exact", "reported", "silent" or "crash".
        operations: The operations up to the one at which the program ended.
        detail: What differed, and how it was reported.
        about: What differed, in a word or two.
        report: How the difference was reported: the codes of findings, or the class of the warning or the error.
    """

    kind: str
    operations: list[str]
    detail: str = ""
    about: str = ""
    report: str = ""


class Hooked(Side):
    """Has the model with the rig."""

    def __init__(self, model: Net, optimizers: list[Optimizer], plan: tuple[HookSpec, ...]) -> None:
        super().__init__(model, optimizers)
        self.notes: list[tuple[str, float]] = []
        #: for each pass of this operation, whether autograd sees its checkpoint
        self.checkpoints: list[bool] = []
        self.ids = {hook.id for hook in plan}
        several = list(optimizers) if len(optimizers) > 1 else optimizers[0]
        self.rig = th.attach(model, [hook.hook(self.notes) for hook in plan], optimizer=several)

    def mute(self, id: str) -> None:
        if id in self.ids:
            self.rig.mute(id)

    def unmute(self, id: str) -> None:
        if id in self.ids:
            self.rig.unmute(id)

    def compile(self) -> None:
        torch._dynamo.reset()
        self.model.compile(backend="aot_eager")

    def loss(self, batch: int, via: str) -> Tensor:
        loss = super().loss(batch, via)
        self.checkpoints.append(via == "method" or (self.model.spec.reentrant and has_reentrant_checkpoint(loss)))
        return loss

    def detach(self) -> None:
        self.ids = set()
        self.rig.detach()


def has_reentrant_checkpoint(loss: Tensor) -> bool:
    """Return True if a reentrant checkpoint is in the graph of a loss. Code that was compiled as a whole has none."""
    nodes = [loss.grad_fn]
    seen = set(nodes)
    while nodes:
        node = nodes.pop()
        if node is None:
            continue
        if node.name() == "CheckpointFunctionBackward":
            return True
        new = {one for one, _ in node.next_functions} - seen
        seen |= new
        nodes += new
    return False


# -- comparing --------------------------------------------------------------------------------------------------------


def _same(a: Tensor | None, b: Tensor | None, within: float = 0.0) -> bool:
    if a is None or b is None:
        return a is b
    if torch.equal(a, b):
        return True
    return a.shape == b.shape and torch.allclose(a, b, rtol=within, atol=within / 10, equal_nan=True)


def _far(a: Tensor | None, b: Tensor | None) -> str:
    if a is None or b is None:
        return f"{'None' if a is None else 'a tensor'} instead of {'None' if b is None else 'a tensor'}"
    return f"differs by up to {(a - b).abs().max().item():.3g}"


def difference_of_models(ours: Net, theirs: Net, within: float, *, stepped: bool) -> Difference | None:
    """Compare all parameters, and after a step their gradients. A hook may report at the step what it missed before."""
    pairs = list(zip(named_parameters(ours), named_parameters(theirs), strict=True))
    values = {name: (a.detach(), b.detach()) for (name, a), (_, b) in pairs if not _same(a, b, within)}
    gradients = {name: (a.grad, b.grad) for (name, a), (_, b) in pairs if stepped and not _same(a.grad, b.grad, within)}
    names = frozenset(values) | frozenset(gradients)
    for about, different in (("parameter", values), ("gradient", gradients)):
        for name, pair in different.items():
            return Difference(about, f"the {about} {name} {_far(*pair)}", names)
    return None


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=2e-5, abs_tol=1e-6) or (math.isnan(a) and math.isnan(b))


def difference_of_observers(hooked: Hooked, twin: Twin, within: float) -> Difference | None:
    """Compare what observers recorded in the step that just ended with what they should have seen."""
    for hook in twin.plan:
        if hook.id in twin.muted or hook.do not in ("stats", "capture"):
            continue
        rows = hooked.rig.values(hook.id) if hook.do == "stats" else hooked.rig.captured(hook.id)
        for names, parts in twin.last.get(hook.id, []):
            text = difference_of_rows(hook, rows, names, parts, within)
            if text is not None:
                return Difference("observer", f"{hook.do} at {hook.at} on {names[0]}: {text}", frozenset(names))
    return None


def difference_of_rows(
    hook: HookSpec, rows: dict[str, Any], names: list[str], parts: list[Tensor], within: float
) -> str | None:
    """Compare what an observer recorded at one target. A target may be recorded under any of its names."""
    name = next((name for name in names if name in rows), None)
    if name is None:
        return f"nothing was recorded, expected {len(parts)} values" if norm(parts) or hook.at != "update" else None
    if hook.do == "capture":
        found = rows[name]
        if len(found) == len(parts) and all(_same(a, b, within) for a, b in zip(found, parts)):
            return None
        return f"captured {len(found)} values that differ from the expected {len(parts)}"
    if _close(rows[name]["norm"], norm(parts)):
        return None
    return f"norm {rows[name]['norm']:.6g}, expected {norm(parts):.6g}"


def difference_of_notes(hooked: Hooked, twin: Twin) -> Difference | None:
    """Compare the values that plain functions received. A value of zeros may be left out: nothing was updated."""
    mine, other = (sorted((id, value) for id, value in side.notes if value > 0 and id not in twin.loose)
                   for side in (hooked, twin))  # fmt: skip
    if [id for id, _ in mine] != [id for id, _ in other]:
        return Difference("function", f"a function was called {len(mine)} times, expected {len(other)}")
    for (id, a), (_, b) in zip(mine, other):
        if not _close(a, b):
            return Difference("function", f"the function of {id} received a value of norm {a:.6g}, expected {b:.6g}")
    return None


def difference(hooked: Hooked, twin: Twin, stepped: bool, within: float) -> Difference | None:
    """Return the first difference between the two sides.

    Args:
        hooked: The model with the rig.
        twin: The model without it.
        stepped: True if a step has ended since the last comparison.
        within: The relative difference of parameters and gradients that is allowed.
    """
    found = difference_of_models(hooked.model, twin.model, within, stepped=stepped)
    if found is None and hooked.copy is not None and twin.copy is not None:
        found = difference_of_models(hooked.copy.model, twin.copy.model, within, stepped=True)
        found = found and Difference("copy", f"in the copy, {found.text}", found.names)
    if found is None:
        found = difference_of_notes(hooked, twin)
    if found is None and twin.plan:
        if hooked.rig.step_count != twin.steps:
            found = Difference("step count", f"step_count is {hooked.rig.step_count}, expected {twin.steps}")
        elif stepped:
            found = difference_of_observers(hooked, twin, within)
    hooked.copy = twin.copy = None
    hooked.notes.clear()
    twin.notes.clear()
    twin.loose.clear()
    return found


# -- executing --------------------------------------------------------------------------------------------------------


def findings_of(rig: th.Rig) -> set[Found]:
    """Return the findings that may be about a hook that did not do what it should."""
    return {(f.code, f.hook, f.target) for f in th.check(rig) if f.code not in ADVICE}


def is_about(found: Found, what: Difference, plan: tuple[HookSpec, ...]) -> bool:
    """Return True if a finding may be about a difference, judging by its target."""
    _, id, target = found
    if target is None or what.names is None or target in what.names:
        return True
    return what.about != "observer" and any(hook.id == id and hook.at in MODULE and not hook.observes for hook in plan)


def report_of(run: Run, what: Difference) -> tuple[str, str]:
    """Return how a difference was reported, or an empty text, and the findings that are about something else.

    A finding counts as a report of the difference if it is new, or if it names what differs. A finding that was there
    before anything differed, and names another target, does not: it may say that another parameter is frozen.
    """
    for warning in run.caught:
        if "tenterhook" in str(warning.message):
            return f"warning: {str(warning.message)[:60]}", ""
    findings = findings_of(run.hooked.rig)
    about = {found for found in findings if is_about(found, what, run.program.hooks)}
    if findings - about:
        about |= findings - run.findings_before()
    return ", ".join(sorted({code for code, *_ in about})), ", ".join(sorted({code for code, *_ in findings - about}))


def is_ours(error: BaseException) -> bool:
    """Return True if an error was raised by the code of tenterhook, or by what that code called in torch."""
    frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    return any(name.startswith(PACKAGE) for name in frames[-6:])


def raised(hooked: Exception | None, twin: Exception | None, done: list[str], bare: bool) -> Outcome | None:
    """Return the outcome of an operation that raised an error on one of the sides.

    Args:
        hooked: The error of the hooked model.
        twin: The error of the twin.
        done: The operations so far.
        bare: True if the operation ran a model that has no hooks: a copy, or the model after detaching.
    """
    if hooked is None and twin is None:
        return None
    if isinstance(hooked, th.TenterhookError) and bare:
        return Outcome("crash", done, f"a model without hooks raised {hooked!r}", "raised in a bare model")
    if isinstance(hooked, th.TenterhookError):
        return Outcome("reported", done, str(hooked), "raised", type(hooked).__name__)
    if hooked is not None and twin is not None and type(hooked) is type(twin):
        return Outcome("exact", done, f"both sides raised {hooked!r}", "raised")
    if hooked is None:
        return Outcome("silent", done, f"only the twin raised {twin!r}", "raised")
    where = "".join(traceback.format_tb(hooked.__traceback__)[-3:])
    about = "raised in tenterhook" if is_ours(hooked) else "raised"
    return Outcome("crash", done, f"only the hooked model raised {hooked!r}\n{where}", about)


def attempt(side: Side, op: Op) -> Exception | None:
    """Perform an operation, and return the error that it raised."""
    try:
        perform(side, op)
    except Exception as error:
        return error
    return None


class Run:
    """Executes a program once, on both sides."""

    def __init__(self, program: Program, compiled: str | None, caught: list[warnings.WarningMessage]) -> None:
        self.program = program
        self.compiled = compiled
        self.caught = caught
        self.done: list[Op] = []
        model = Net(program.model)
        copied = copy.deepcopy(model)
        if compiled is not None:
            torch._dynamo.reset()
            model.compile(backend=compiled)
        self.hooked = Hooked(model, build_optimizers(model, program.optimizers), program.hooks)
        # the order of additions is specified neither for a norm over several gradients nor for compiled code
        summed = compiled is not None or any(one.name == "compile" for one in program.ops) or program.sums
        self.within = (1e-9 if program.model.dtype is torch.float64 else 1e-5) if summed else 0.0
        self.twin = Twin(copied, build_optimizers(copied, program.optimizers), program.hooks)

    def perform(self, op: Op) -> Outcome | None:
        """Perform an operation on both sides. Return the outcome if the program ends here."""
        self.done.append(op)
        texts = [str(one) for one in self.done]
        steps = self.twin.steps
        bare = op.name == "train a copy" or not self.twin.plan
        self.hooked.checkpoints.clear()
        error = attempt(self.hooked, op)
        # code that is not compiled raises a CheckpointError if a parameter was frozen before it is recomputed
        known = self.compiled is not None and not isinstance(error, CheckpointError)
        self.twin.checkpoints = list(self.hooked.checkpoints) if known else []
        outcome = raised(error, attempt(self.twin, op), texts, bare)
        if outcome is not None:
            return outcome
        what = difference(self.hooked, self.twin, self.twin.steps > steps, self.within)
        if what is None:
            return None
        report, other = report_of(self, what)
        if what.about == "step count" and not report and self.twin.has_idle_optimizer():
            return Outcome("exact", texts, "an optimizer trains no parameter of the model")
        text = f"{what.text} (findings about other targets: {other})" if other else what.text
        return Outcome("reported" if report else "silent", texts, text, what.about, report)

    def findings_before(self) -> set[Found]:
        """Return the findings before the last operation, from an execution of the operations before it."""
        again = Run(self.program, self.compiled, [])
        try:
            for op in self.done[:-1]:
                attempt(again.hooked, op)
            return findings_of(again.hooked.rig)
        finally:
            again.hooked.detach()


def execute(program: Program, compiled: str | None = None) -> Outcome:
    """Execute a program and return its outcome."""
    if compiled is not None:
        program = program.for_compiler(compiled)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # This warning answers the oracle's own question. It must not count as a report of a difference.
        warnings.filterwarnings("ignore", message=r"tenterhook: rig\..* is empty")
        try:
            run = Run(program, compiled, caught)
        except th.TenterhookError as error:
            return Outcome("reported", ["attach"], str(error), "attach", type(error).__name__)
        try:
            return _execute(run)
        finally:
            run.hooked.detach()


def _execute(run: Run) -> Outcome:
    ops = run.program.ops
    if run.program.detach:
        ops = (*ops, Op("detach"), Op("train", {"batch": 0, "via": "root", "zero": "none"}))
    for op in ops:
        outcome = run.perform(op)
        if outcome is not None:
            return outcome
    alarms = [str(one.message).split(".")[0] for one in run.caught if "tenterhook TH7" in str(one.message)]
    return Outcome("exact", [str(op) for op in ops], about="alarm" * bool(alarms), report=alarms[0] if alarms else "")
