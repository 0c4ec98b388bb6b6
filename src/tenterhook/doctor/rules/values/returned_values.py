"""Implement the rules for the values that a hook returns."""

from __future__ import annotations

from tenterhook import torch_internals as private
from tenterhook.doctor.edits import hook_functions as edits
from tenterhook.doctor.observe.hook_kinds import BACKWARD, FORWARD, MULTI
from tenterhook.doctor.observe.hook_record import HookRecord
from tenterhook.doctor.patch.recording import Recording
from tenterhook.doctor.rules.registry import Words, plural, rule, with_article


@rule("TH311")
def without_graph(hook: HookRecord) -> Words | None:
    count = hook.returns.without_graph
    if not count:
        return None
    if hook.kind in FORWARD:
        what, remedy = "the layers before it get no gradient through this value", "return output * factor"
    else:
        what, remedy = "so the gradient that the program differentiates again is a constant", "return grad * factor"
    return Words(
        f"in {plural(count, 'firing')}, the hook received a value with a graph and returned one without; {what}",
        f"{remedy}  # without .data, .detach(), .numpy() or torch.no_grad()",
        as_note=hook.kind in FORWARD,  # an ablation returns a constant on purpose
    )


@rule("TH312")
def return_is_ignored(hook: HookRecord) -> Words | None:
    if hook.returns.ignored is None:
        return None
    if hook.kind == MULTI:
        remedy = "for p in parameters:\n    p.register_hook(fn)  # fn(grad) may return a new gradient"
    elif hook.kind == private.STATE_REGISTRARS[0]:
        remedy = "del state_dict[prefix + name]  # change the dict that the hook receives"
    else:
        remedy = "# change the object that the hook receives instead of returning a new one"
    return Words(
        f"the hook returned {with_article(hook.returns.ignored)}; PyTorch ignores what {_hook_of(hook.kind)} returns",
        remedy,
    )


def _hook_of(kind: str) -> str:
    name = kind.removeprefix("_").removeprefix("register_").removesuffix("_hook").replace("_", "-")
    return f"{with_article(name)} hook"


@rule("TH313")
def replaces_the_derivative(hook: HookRecord) -> Words | None:
    if hook.kind != BACKWARD[1] or not hook.changed or hook.reads_argument(1) is not False:
        return None
    return Words(
        f"the hook returned a new grad_input in {plural(hook.changed, 'firing')} without reading grad_input, so the "
        "derivative of the module itself is left out",
        "return (grad_input[0].clamp(min=0),)  # start from grad_input, which contains the derivative",
    )


@rule("TH314")
def after_the_loss(hook: HookRecord) -> Words | None:
    if hook.after_loss is None:
        return None
    return Words(
        f"the hook changed {hook.after_loss!r} of an output that already contained the loss; the loss was computed "
        "from the old value",
        f"model.lm_head.{FORWARD[1]}(fn)  # hook the module that computes the value, inside the model",
    )


@rule("TH526")
def replaced_output(hook: HookRecord) -> Words | None:
    if hook.returns.odd is None:
        return None
    return Words(
        f"the hook returned {hook.returns.odd}, which replaced the output of the module",
        "return None  # or return a value like the output",
        edit=edits.return_none,
    )


@rule("TH527")
def fewer_arguments(hook: HookRecord) -> Words | None:
    if hook.returns.fewer is None:
        return None
    returned, given = hook.returns.fewer
    return Words(
        f"the module was called with {plural(given, 'positional argument')}, and the pre-hook returned {returned}; "
        "PyTorch passes only what the hook returns",
        "return (changed, *args[1:])  # every argument, the changed ones and the others",
        edit=edits.return_every_argument,
    )


@rule("TH531")
def in_another_order(hook: HookRecord) -> Words | None:
    if hook.returns.swapped is None:
        return None
    before, after = hook.returns.swapped
    return Words(
        f"the value with index {before} in the output has index {after} in the tuple that the hook returned",
        "return (changed, *output[1:])  # in the order of the output",
    )


@rule("TH539")
def of_another_shape(hook: HookRecord) -> Words | None:
    if hook.returns.misshapen is None:
        return None
    return Words(
        f"the tensor that the hook returned has {hook.returns.misshapen}",
        "return changed.expand_as(output).to(output.dtype)",
        as_note=hook.returns.misshapen.startswith("the type"),
    )


@rule("TH533")
def stored_before_the_change(hook: HookRecord, seen: Recording) -> Words | None:
    count = hook.returns.stored_before
    if not count and hook.kind == FORWARD[1] and any(one.shared or one.kind == "Tensor" for one in hook.stored):
        return _replaced_by_the_next(hook, seen)
    if not count:
        return None
    return Words(
        f"in {plural(count, 'firing')}, the hook stored the output and returned another tensor, so the model "
        "continued with a value that is not stored",
        "new = output * factor\nkept.append(new)\nreturn new",
    )


def _replaced_by_the_next(hook: HookRecord, seen: Recording) -> Words | None:
    """Report a value that a later hook of the same module replaced."""
    later = [one for one in seen.hooks[hook.number + 1 :] if one.owner.id == hook.owner.id and one.kind == hook.kind]
    after = next((one for one in later if one.returned and one.last and hook.last and one.born <= hook.last), None)
    if after is None or after.foreign:
        return None
    return Words(
        f"the hook stored a value of the output; then {after.function!r}, a later hook of the module, replaced the "
        "output",
        f"module.{FORWARD[1]}(fn)  # register this hook after the one that changes the output",
    )
