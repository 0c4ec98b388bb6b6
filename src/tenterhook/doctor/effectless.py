"""Why a hook that fired had no effect, or another than was meant; why it fired too often, or at the wrong moment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import Tensor, nn

from tenterhook.doctor.findings import Finding, finding
from tenterhook.doctor.watched import BACKWARD, FORWARD, TENSOR, Watched
from tenterhook.rig import torch_private as private

if TYPE_CHECKING:
    from tenterhook.doctor.raw import Exam

#: optimizers whose update does not know the size of a gradient
SCALE_FREE = frozenset(
    ["Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Adagrad", "Adadelta", "Rprop", "SparseAdam", "Muon"]
)


def _said(hook: Watched, code: str, evidence: str, remedy: str) -> Finding:
    return finding(code, evidence, remedy, hook=hook.function, target=hook.owner.name, place=hook.caller.place,
                   foreign=hook.foreign)  # fmt: skip


def without_effect(hook: Watched, exam: Exam) -> Iterator[Finding]:
    if not hook.fired:
        return
    yield from _returned_nothing(hook)
    yield from _on_the_way_to_the_step(hook, exam)
    looks = hook.looks
    if looks and all(look.equal for look in looks) and hook.changed:
        yield _said(hook, "TH302", f"{len(looks)} firings were compared, and all returned the numbers they were given",
                    "# nothing to do if the limit is just not reached")  # fmt: skip


def _below(hook: Watched) -> str:
    return "*" if hook.owner.name == "." else f"{hook.owner.name}.*"


def _own_parameters(module: nn.Module) -> list[str]:
    return [key for key, p in private.own_parameters(module).items() if p is not None and p.requires_grad]


def _returned_nothing(hook: Watched) -> Iterator[Finding]:
    reading = hook.reading
    if reading is None or reading.lost is None or hook.returned or hook.kind not in (TENSOR[0], *FORWARD, *BACKWARD):
        return
    given = reading.arguments[0] if reading.arguments else "grad"
    named = f"its result is called {reading.lost!r}" if reading.lost else "its result has no name"
    value = reading.lost or f"{given} * 2"
    shown = f"({value},)" if hook.kind in BACKWARD else value
    yield _said(
        hook, "TH301", f"fired {hook.fired} times and returned None each time; {named}, and is thrown away",
        f"def {hook.function.rpartition('.')[2]}({', '.join(reading.arguments)}):\n    ...\n    return {shown}",
    )  # fmt: skip


def _on_the_way_to_the_step(hook: Watched, exam: Exam) -> Iterator[Finding]:
    looks, course = hook.looks, exam.course
    if hook.cleared:
        yield _said(
            hook, "TH308", f"returned a gradient of norm {looks[-1].returned:.4g}; at {hook.cleared} of {hook.reached} "
            "steps the parameter had none, or zero",
            "optimizer.zero_grad()  # before the backward\nloss.backward()\noptimizer.step()       # nothing in between",
        )  # fmt: skip
    moved = [(delta, why) for delta, why in hook.moved if delta]
    if moved:
        yield _said(
            hook, "TH304", f"returned zero, and the step moved the parameter by {moved[-1][0]:.4g}: by {moved[-1][1]}",
            'optimizer = torch.optim.SGD([{"params": free}, {"params": held, "weight_decay": 0.0, "momentum": 0.0}], lr=lr)\n'
            "held.requires_grad_(False)  # or, with set_to_none: no gradient, no step",
        )  # fmt: skip
    factors = [look.factor for look in looks if look.factor is not None and not look.equal]
    constant = bool(factors) and len(factors) == len(looks) and max(factors) - min(factors) <= 1e-4 * abs(factors[0])
    limits = hook.reading is not None and hook.reading.limits
    if constant and not limits and factors[0] > 0:
        clips = [factor for factor, alike in hook.clipped if alike]
        if hook.clipped and len(clips) == len(hook.clipped) and max(clips) < 1:
            yield _said(
                hook, "TH306", f"multiplied every gradient by {factors[0]:.4g}; clip_grad_norm_ then multiplied all of "
                f"them by {clips[-1]:.4g}, to the same norm as without",
                "clip_grad_norm_(model.parameters(), max_norm)\nfor p in chosen:\n    p.grad.mul_(factor)  # after it",
            )  # fmt: skip
        elif hook.reached and hook.optimizers and hook.optimizers <= SCALE_FREE:
            name = min(hook.optimizers)
            yield _said(
                hook, "TH305", f"multiplied {len(factors)} of {len(looks)} gradients by {factors[0]:.4g}; {name} divides "
                "each by a running size of itself, and the factor falls out",
                f'torch.optim.{name}([{{"params": rest}}, {{"params": chosen, "lr": lr * factor}}], lr=lr)  # scale the lr',
            )  # fmt: skip
    if hook.changed and course.steps and hook.outside and not hook.reached:
        yield _said(
            hook, "TH310", f"changed the gradient {hook.changed} times; {course.steps} steps ran, of optimizers that do "
            "not hold this parameter",
            "optimizer = torch.optim.SGD(model.parameters(), lr=lr)  # of the model that is trained",
        )  # fmt: skip
    scaled = [look for look in looks if look.scale != 1.0 and not look.equal and (limits or look.factor is None)]
    if scaled:
        yield _said(
            hook, "TH309", f"the loss was multiplied by {scaled[-1].scale:g}, so it saw up to {scaled[-1].peaks[0]:.4g} "
            f"where the gradient was {scaled[-1].peaks[0] / scaled[-1].scale:.4g}",
            f'th.hook(model, th.clip_value(1.0), on="{hook.owner.name}", at="grad_final", optimizer=optimizer)  # unscaled',
        )  # fmt: skip


def at_the_wrong_moment(hook: Watched, exam: Exam) -> Iterator[Finding]:
    if not hook.fired:
        return
    looks = hook.looks
    limits = (hook.reading is not None and hook.reading.limits) or any(k.factor is None and not k.equal for k in looks)
    if hook.graphs == {True, False} and hook.changed:
        yield _said(
            hook, "TH406", f"fired {hook.fired} times, in passes with create_graph=True and without: a change is made in both",
            "handle = w.register_hook(fn)\n(g,) = torch.autograd.grad(loss, w, create_graph=True)\nhandle.remove()\n"
            "g.sum().backward()",
        )  # fmt: skip
    elif hook.accumulating and hook.changed and limits and hook.owner.leaf:
        peaks = max(look.peaks[1] for look in looks) if looks else 0.0
        yield _said(
            hook, "TH401", f"{hook.accumulating} of the first {min(hook.fired, 8)} firings met a .grad that was there "
            f"already; each returned at most {peaks:.4g}, their sum may be more",
            f'th.hook(model, th.clip_value({peaks:.4g}), on="{hook.owner.name}", at="grad_final", optimizer=optimizer)',
        )  # fmt: skip
    if hook.kind in BACKWARD and hook.most_in_backward > 1:
        yield _said(
            hook, "TH402", f"fired up to {hook.most_in_backward} times in one backward, once for each call",
            f'th.hook(model, lambda g, ctx: ..., on="{hook.owner.name}", at="grad_output")  # ctx.call says which',
        )  # fmt: skip
    if hook.recomputed:
        yield _said(
            hook, "TH404", f"{hook.recomputed} of {hook.fired} firings were in a recomputation",
            f'th.hook(model, fn, on="{hook.owner.name}", at="output")  # observes each call once',
        )  # fmt: skip
    if hook.without_input:
        yield _said(
            hook, "TH407", f"grad_input was None in {hook.without_input} of {hook.fired} firings",
            f'th.hook(model, fn, on="{_below(hook)}", at="grad_accumulated")  # when the gradients are there',
        )  # fmt: skip
    if hook.rebased:
        yield _said(
            hook, "TH408", "the gradient it got is that of the value before the operation in place",
            "y = y * 2              # not y.mul_(2)\ny.register_hook(fn)    # or register after the operation",
        )  # fmt: skip
    if hook.copies_fired:
        yield finding(
            "TH108", f"fired {hook.fired} times, and on copies of the model {hook.copies_fired} times more",
            "copied = copy.deepcopy(model)\ncopied.layer._forward_hooks.pop(handle.id)  # or copy before hooks are put on",
            hook=hook.function, target=hook.owner.name, place=hook.caller.place, foreign=True,
        )  # fmt: skip
    if hook.late_firings and hook.kind in BACKWARD:
        yield _said(
            hook, "TH410", f"{hook.late_firings} firings after handle.remove(): the forward had taken it along",
            "loss.backward()\nhandle.remove()",
        )  # fmt: skip


def elsewhere(hook: Watched) -> Iterator[Finding]:
    """A module's backward hook that changes what goes to the layers before."""
    module = hook.owner.now()
    if hook.kind == BACKWARD[1] and hook.changed and isinstance(module, nn.Module) and _own_parameters(module):
        yield _said(
            hook, "TH303", f"{hook.changed} of {hook.fired} firings returned another grad_input: it goes to the layers "
            f"before; the gradients of {', '.join(_own_parameters(module))} are made of grad_output, and stay",
            f'th.hook(model, fn, on="{_below(hook)}", at="grad")         # the gradients of its parameters\n'
            f'th.hook(model, fn, on="{_below(hook)}", at="grad_final")   # those that the optimizer uses',
        )  # fmt: skip


def repeated(exam: Exam) -> Iterator[Finding]:
    """The same function more than once on one target."""
    groups: dict[tuple[object, ...], list[Watched]] = {}
    for hook in exam.hooks:
        if hook.foreign or hook.removed is not None or not hook.alive or (now := hook.owner.now()) is None:
            continue
        same = hook.identity[1] and (hook.identity[1], hook.caller.place)
        function = same or hook.identity[0]
        by_object = (id(now), hook.kind, hook.identity[0])
        groups.setdefault((id(now), hook.kind, function), []).append(hook)
        if same and hook.identity[0]:
            groups.setdefault((*by_object, "object"), []).append(hook)
    told: set[int] = set()
    for hooks in sorted(groups.values(), key=len, reverse=True):
        if len(hooks) < 2 or any(h.number in told for h in hooks):
            continue
        told |= {h.number for h in hooks}
        first, times = hooks[0], f"{len(hooks)} times on {hooks[0].owner.name!r}"
        if len({h.born.backwards for h in hooks}) > 2:
            yield _said(
                first, "TH409", f"registered {times}, in {len({h.born.backwards for h in hooks})} steps; each of them "
                "runs in every backward",
                "handle = p.register_hook(fn)  # once, before the loop",
            )  # fmt: skip
        elif len(names := _names_of(first)) > 1:
            yield _said(
                first, "TH405", f"registered {times}, which is also called {names[1]!r}: a change is made twice",
                "for name, p in model.named_parameters():  # names a tied parameter once\n    p.register_hook(fn)",
            )  # fmt: skip
        else:
            yield _said(
                first, "TH403", f"registered {times}: a change is made {len(hooks)} times",
                "handle.remove()                # the old one first\nhandle = p.register_hook(fn)",
            )  # fmt: skip


def _names_of(hook: Watched) -> list[str]:
    root = hook.owner.place.root() if hook.owner.place is not None else None
    now = hook.owner.now()
    if root is None or now is None:
        return []
    found = root.named_parameters(remove_duplicate=False) if isinstance(now, Tensor) else (
        root.named_modules(remove_duplicate=False))  # fmt: skip
    return [name for name, one in found if one is now]
