"""Implement the TH3xx rules: a hook fired but had no effect, or had an unintended effect."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from tenterhook.doctor.edits import hook_functions as edits
from tenterhook.doctor.observe.hook_kinds import BACKWARD, FORWARD, TENSOR
from tenterhook.doctor.observe.hook_record import HookRecord
from tenterhook.doctor.observe.values.stored import reachable
from tenterhook.doctor.reading.bytecode import LIMITS, Reading
from tenterhook.doctor.rules.registry import Subject, Words, plural, rule

#: optimizers whose update does not depend on the magnitude of the gradient
SCALE_FREE = frozenset(
    ["Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Adagrad", "Adadelta", "Rprop", "SparseAdam", "Muon"]
)
#: functions that make noise
_NOISE = ("randn_like", "randn", "normal", "normal_", "rand_like", "rand")
NOT_REACHED = "# nothing to fix if no gradient was expected to exceed the limit"


def limits(hook: HookRecord) -> bool:
    """Return True if the hook's function clamps values or divides by a norm."""
    if hook.reading is None:  # a built-in function such as torch.clamp
        fn = hook.fn()
        while isinstance(fn, partial):
            fn = fn.func
        return getattr(fn, "__name__", "") in LIMITS
    return hook.reading.limits


@rule("TH301")
def returned_nothing(
    about: HookRecord | Subject, reading: Reading | None = None, function: str = "", fired: int = 0
) -> Words | None:
    """Find a function that computes a new value but returns None.

    For a rig's hook, `reading` describes the bytecode of the function.
    """
    if isinstance(about, Subject):
        if reading is None or reading.lost is None:
            return None
        value = reading.lost or f"{reading.arguments[0]} * 2"
        return Words(
            f"{plural(fired, 'firing')} returned None",
            f"def {function.rpartition('.')[2]}({', '.join(reading.arguments)}):\n    ...\n    return {value}",
        )
    if about.unguarded and any(map(about.calls_method, ("isfinite", "isnan", "isinf"))):
        return Words(
            f"the hook returned None for {plural(about.unguarded, 'gradient')} with values that are not finite; None "
            "leaves the gradient as it is",
            "return torch.nan_to_num(grad, nan=0.0, posinf=0.0, neginf=0.0)",
        )
    reading = about.reading
    if reading is None or reading.lost is None or about.returned or about.foreign:
        return None
    if about.kind not in (TENSOR[0], *FORWARD, *BACKWARD):
        return None
    given = reading.arguments[-1] if reading.arguments else "grad"
    named = f"the new value {reading.lost!r}" if reading.lost else "the new value"
    value = reading.lost or f"{given} * 2"
    shown = f"({value},)" if about.kind in BACKWARD else value
    return Words(
        f"the hook fired {plural(about.fired, 'time')} and returned None each time; {named} is discarded",
        f"def {about.function.rpartition('.')[2]}({', '.join(reading.arguments)}):\n    ...\n    return {shown}",
        edit=partial(edits.return_the_value, name=reading.lost, as_tuple=about.kind in BACKWARD),
    )


@rule("TH302")
def returned_what_it_was_given(about: HookRecord | Subject, fired: int = 0) -> Words | None:
    if isinstance(about, Subject):
        return Words(
            f"in {plural(fired, 'firing')}, the hook returned exactly the values that it received", NOT_REACHED
        )
    samples = about.samples
    if not samples or not all(look.equal for look in samples) or not about.changed:
        return None
    return Words(
        f"in {plural(len(samples), 'compared firing')}, the hook returned exactly the values that it received",
        NOT_REACHED,
    )


@rule("TH303")
def changes_the_layers_before(hook: HookRecord) -> Words | None:
    """Find a backward hook that changes the gradients of preceding layers but not those of the module's parameters."""
    module = hook.owner.now()
    if hook.kind != BACKWARD[1] or not hook.changed or not isinstance(module, nn.Module):
        return None
    own = [name for name, p in module.named_parameters() if p.requires_grad]
    if not own:
        return None
    return Words(
        f"{hook.changed} of {hook.fired} firings returned a new grad_input, which is passed to the preceding layers; "
        f"the gradients of {', '.join(own[:3])}{' and others' if own[3:] else ''} are computed from grad_output and "
        "did not change",
        f'th.hook(model, fn, on="{hook.below}", at="grad")  # fn(grad) receives the parameters\' gradients\n'
        f'th.hook(model, fn, on="{hook.below}", at="grad_final", optimizer=optimizer)  '
        "# or receives the gradients that the step uses",
    )


@rule("TH304")
def moved_all_the_same(hook: HookRecord) -> Words | None:
    """Find elements that the optimizer step changed although the hook had set their gradients to zero."""
    moved = [(delta, why) for delta, why in hook.moved if delta]
    if not moved or not _same_mask(hook):
        return None
    delta, why = moved[-1]
    return Words(
        f"the hook set gradients to zero, but the step changed those elements by {delta:.4g}, because of {why}",
        'held = {"params": [p], "weight_decay": 0.0, "momentum": 0.0}  # a separate parameter group\n'
        "p.requires_grad_(False)                                       # or freeze the whole parameter",
    )


def _same_mask(hook: HookRecord) -> bool:
    """Return True if no firing returned a gradient for an element that another firing set to zero.

    If the elements vary, as with dropout, the hook is not meant to keep any of them fixed.
    """
    masks = [(look.zeroed, look.left) for look in hook.samples if look.zeroed is not None and look.left is not None]
    return not any(bool((zeroed & left).any()) for zeroed, _ in masks for _, left in masks)


@rule("TH305")
def divided_out_by_the_optimizer(hook: HookRecord) -> Words | None:
    factor = _constant_factor(hook)
    if factor is None or _clipped_again(hook) is not None:
        return None
    if not hook.reached or not hook.optimizers or not hook.optimizers <= SCALE_FREE:
        return None
    name, times = min(hook.optimizers), len(hook.samples)
    return Words(
        f"{times} of {times} gradients were multiplied by {factor:.4g}; {name} divides each gradient by a running "
        "average of its magnitude, which cancels the factor",
        f'chosen = {{"params": [p], "lr": lr * factor}}  # scale the learning rate instead\n'
        f'optimizer = torch.optim.{name}([{{"params": rest}}, chosen], lr=lr)',
    )


@rule("TH306")
def divided_out_by_clipping(hook: HookRecord) -> Words | None:
    factor, clip = _constant_factor(hook), _clipped_again(hook)
    if factor is None or clip is None:
        return None
    return Words(
        f"the hook multiplied every gradient by {factor:.4g}; clip_grad_norm_ then multiplied all gradients by "
        f"{clip:.4g}, so their norm is the same as without the hook",
        "clip_grad_norm_(model.parameters(), max_norm)\nfor p in chosen:\n    p.grad.mul_(factor)  # after clipping",
    )


def _is_round(factor: float | None) -> bool:
    """Return True for a number with at most two digits, such as 0.1 or 1000."""
    return factor is not None and abs(factor - float(f"{factor:.1e}")) <= 1e-6 * abs(factor)


def _constant_factor(hook: HookRecord) -> float | None:
    """Return the factor by which every firing multiplied its gradient, if the factor is positive and constant."""
    factors = [look.factor for look in hook.samples if look.factor is not None and not look.equal]
    if len(hook.samples) == 1 and hook.samples[0].elements == 1 and not _is_round(hook.samples[0].factor):
        return None  # any number is a multiple of another one
    if not factors or len(factors) != len(hook.samples) or max(factors) - min(factors) > 1e-4 * abs(factors[0]):
        return None
    return None if limits(hook) or factors[0] <= 0 else factors[0]


def _clipped_again(hook: HookRecord) -> float | None:
    """Return the factor of the last gradient-norm clip if every clip cancelled the hooks' scaling, otherwise None."""
    clips = [factor for factor, alike in hook.clipped if alike]
    taken_out = hook.clipped and len(clips) == len(hook.clipped) and max(clips) < 1
    return clips[-1] if taken_out else None


@rule("TH307")
def grad_of_no_leaf(about: HookRecord | Subject, place: str) -> Words:
    """Explain why the `.grad` of a non-leaf tensor is None. The warning that PyTorch prints is easy to miss."""
    fired = "retain_grad() was not called on this tensor"
    if isinstance(about, HookRecord):
        fired = f"the hook fired {plural(about.fired, 'time')} and changed {plural(about.changed, 'gradient')}"
    return Words(
        f".grad was read at {place}; an operation created the tensor, so PyTorch did not store its gradient in "
        f".grad ({fired})",
        "x = (torch.randn(2, 2) * 10).requires_grad_()  # a leaf, because requires_grad_() comes last\n"
        "x.retain_grad()                                # or keep the gradient of a non-leaf tensor",
    )


@rule("TH308")
def cleared_before_the_step(hook: HookRecord, *, by_itself: bool = False) -> Words | None:
    """Find a gradient that was cleared before the optimizer step.

    If `by_itself` is true, the hook itself set `.grad` to None before DDP reduced the gradient.
    """
    if by_itself:
        return Words(
            f"the hook set .grad to None in {hook.dropped} of {hook.fired} firings before DDP reduced the gradient, "
            "so DDP writes zeros",
            "loss.backward()\noptimizer.step()\noptimizer.zero_grad()  # after the step",
        )
    if not hook.cleared:
        return None
    return Words(
        f"the hook returned a gradient of norm {hook.samples[-1].returned:.4g}; at {hook.cleared} of {hook.reached} "
        "steps, the parameter's gradient was None or zero",
        "optimizer.zero_grad()  # before the backward pass\n"
        "loss.backward()\n"
        "optimizer.step()       # without zero_grad() in between",
    )


@rule("TH309")
def limit_on_scaled_gradient(hook: HookRecord) -> Words | None:
    scaled = [look for look in hook.samples if look.scale != 1.0 and not look.equal and limits(hook)]
    if hook.calls_method("get_scale"):
        return None
    noisy = [look for look in hook.samples if look.scale != 1.0 and not look.equal and look.factor is None]
    if noisy and not scaled and any(map(hook.calls_method, _NOISE)):
        return Words(
            f"the loss was multiplied by {noisy[-1].scale:g}; the hook adds noise to the scaled gradient, and the "
            "noise is then divided by the scale",
            "scaler.unscale_(optimizer)  # then add the noise to p.grad\nscaler.step(optimizer)",
        )
    if not scaled and hook.scaled_by != 1.0 and hook.stored and not hook.changed:
        return Words(
            f"the loss was multiplied by {hook.scaled_by:g}, so the gradients that the hook stored are larger by this "
            "factor",
            f'th.hook(model, th.stats(), on="{hook.owner.name}", at="grad_final", optimizer=optimizer)',
            as_note=True,
        )
    if not scaled:
        return None
    (peak, limit), scale = scaled[-1].peaks, scaled[-1].scale
    return Words(
        f"the loss was multiplied by {scale:g}, so the hook received {peak:.4g} instead of {peak / scale:.4g}",
        f'th.hook(model, th.clip_value({limit:.4g}), on="{hook.owner.name}", at="grad_final", optimizer=optimizer)',
    )


@rule("TH310")
def no_optimizer_holds_it(hook: HookRecord, steps: int, held: frozenset[int] = frozenset()) -> Words | None:
    """Report a parameter that no optimizer steps. `held` contains the ids of the parameters of all optimizers."""
    if steps and hook.kind in FORWARD and hook.returned and (name := _own_parameter(hook, held)):
        return Words(
            f"the hook uses {name}, which receives a gradient; {plural(steps, 'step')} ran, but only in optimizers "
            "that do not contain it",
            f'optimizer.add_param_group({{"params": [{name}]}})',
        )
    if not hook.changed or not steps or not hook.outside or hook.reached or not hook.owner.is_parameter:
        return None
    return Words(
        f"the hook changed the gradient {plural(hook.changed, 'time')}; {plural(steps, 'step')} ran, but only in "
        "optimizers that do not contain this parameter",
        'optimizer.add_param_group({"params": [p]})  # or create the optimizer from the model that you train',
    )


def _own_parameter(hook: HookRecord, held: frozenset[int]) -> str | None:
    """Return the name of a leaf of the hook that has a gradient and that the optimizers do not contain, or None."""
    fn = hook.fn()
    for name, value in reachable(fn) if fn is not None else ():
        inside = vars(value) if hasattr(value, "__dict__") and not isinstance(value, nn.Module | type) else {}
        for path, one in ((name, value), *((f"{name}.{key}", one) for key, one in inside.items())):
            leaf = isinstance(one, Tensor) and one.is_leaf and one.requires_grad
            if leaf and one.grad is not None and id(one) not in held:
                return path
    return None
