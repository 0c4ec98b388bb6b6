"""Implement the TH5xx and TH6xx rules: hazards (TH5xx), and legacy, global or foreign hooks (TH6xx)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tenterhook.doctor.edits import hook_functions as edits
from tenterhook.doctor.edits.program_lines import call_it
from tenterhook.doctor.findings import Finding
from tenterhook.doctor.observe.hook_kinds import BACKWARD, FORWARD, TENSOR
from tenterhook.doctor.observe.hook_record import HookRecord
from tenterhook.doctor.patch.recording import Recording
from tenterhook.doctor.rules.registry import Subject, Words, found, plural, quoting, rule

#: the minimum number of backward passes with retained graphs or kept values that the doctor reports
HABIT = 3

excludes_in_place = quoting("TH508")
wrong_return = quoting("TH511")
pickled = quoting("TH604")


@rule("TH501")
def changes_in_place(hook: HookRecord) -> Words | None:
    if not hook.in_place or hook.kind not in (TENSOR[0], *BACKWARD):
        return None
    given = hook.reading.arguments[-1] if hook.reading is not None and hook.reading.arguments else "grad"
    return Words(
        f"{hook.in_place} of {hook.fired} firings changed the gradient in place; another part of the graph may use the "
        "same memory",
        f"return {given} * 2  # a new tensor instead of {given}.mul_(2)",
        edit=partial(edits.change_a_copy, name=given) if hook.kind == TENSOR[0] else None,
    )


@rule("TH502")
def holds_its_tensor(hook: HookRecord, alive: int, holding: int) -> Words:
    return Words(
        f"the hook refers to its tensor as {hook.holder!r}; {alive} of {holding} tensors that this line hooked are "
        "still alive after garbage collection, each with its graph",
        f"value = {hook.holder}.detach()\n{hook.holder}.register_hook(lambda grad: ...)  # use value in the function",
    )


@rule("TH503")
def keeps_graphs(hook: HookRecord, kept: int, shown: int) -> Words:
    return Words(
        f"{kept} of {shown} values that the hook received are still alive, together with their graphs",
        "kept.append(value.detach())",
        edit=partial(edits.store_a_copy, method="detach"),
    )


@rule("TH504")
def always_retains(about: Subject, retained: int, backwards: int) -> Words | None:
    if retained < HABIT or retained != backwards:
        return None
    return Words(
        f"{retained} of {backwards} backward passes retained their graph",
        "loss.backward()  # use retain_graph=True only if you need the same graph again",
    )


@rule("TH505")
def waits_for_the_device(hook: HookRecord) -> Words | None:
    if hook.reading is None or not hook.reading.waits or not hook.fired or hook.device == "cpu":
        return None
    return Words(
        f"the hook fired {plural(hook.fired, 'time')} and calls .{'(), .'.join(hook.reading.waits)}()",
        "values.append(x.detach().norm())        # stays on the device\n"
        "numbers = torch.stack(values).tolist()  # waits once per step",
    )


@rule("TH507")
def raised(hook: HookRecord, error: str, signature: str | None) -> Words:
    """Report a hook that raised an error.

    If the hook does not accept PyTorch's arguments, `signature` is the signature that it needs.
    """
    if signature is None:
        return Words(error, "# fix the hook's function, or catch the error inside it")
    return Words(f"{error}; PyTorch calls the hook as {signature[4:-5]}", signature)


@rule("TH509")
def gone_at_its_recomputation(hook: HookRecord) -> Words | None:
    if not hook.recomputed_without:
        return None
    return Words(
        f"the hook changed {plural(hook.returned, 'output')} and was removed; "
        f"{plural(hook.recomputed_without, 'checkpoint')} ran again without it, so the gradients belong to a different "
        "forward pass",
        "loss.backward()  # runs the forward pass again\nhandle.remove()  # so remove the hook afterwards",
    )


@rule("TH510")
def muted_itself(about: Subject, muted: int, targets: int, why: str) -> Words:
    return Words(
        f"the hook failed on {muted} of {targets} targets: {why}",
        f'rig.unmute("{about.hook}")  # after you fix the action',
    )


@rule("TH519")
def values_lost(about: Subject, what: str) -> Words:
    return Words(
        what,
        "repair a sink that raised an error; give a slow one more time, as in th.Store(path, close_timeout=300), or "
        "record less, as in when=th.When(every=10)",
    )


@rule("TH601")
def legacy_hook(hook: HookRecord) -> Words | None:
    if hook.kind != "register_backward_hook":
        return None
    return Words(
        f"the hook fired {plural(hook.fired, 'time')} with the gradients of the last operation inside the module, not "
        "with the gradients of the module's inputs",
        "module.register_full_backward_hook(fn)\n"
        f'th.hook(model, fn, on="{hook.owner.name}", at="grad_input")  # or this, with fn(grad)',
    )


@rule("TH602")
def hooks_every_module(about: Subject, kind: str) -> Words:
    if "optimizer" in kind:
        return Words(
            f"{kind} hooks every optimizer in the process, so the hook fires in the step of each of them",
            f"optimizer.{kind.replace('optimizer_', '')}(fn)  # the optimizer that you mean",
        )
    return Words(
        f"{kind} hooks every module in the process, including library modules",
        f"for m in model.modules():\n    m.{kind.replace('module_', '')}(fn)",
    )


@rule("TH603")
def evaluates_text(about: Subject) -> Words:
    return Words(
        "the program runs text as code, and the text is not a literal in the program",
        'th.hook(model, fn, on="type:Linear", at="output")  # compares names and runs no code',
    )


@rule("TH605")
def taken_off(hook: HookRecord) -> Words | None:
    if hook.overwrote or not hook.taken_off or hook.kind not in (*TENSOR, *FORWARD, *BACKWARD):
        return None
    return Words(
        f"the hook fired {plural(hook.fired, 'time')} and is no longer registered, but handle.remove() was not called",
        "handle.remove()  # removes one hook; do not call module._forward_hooks.clear()",
    )


@rule("TH607")
def remove_is_not_called(about: Subject) -> Words:
    return Words(
        "the line names the method remove without calling it, so the hook stays registered",
        "handle.remove()",
        edit=call_it,
    )


@rule("TH606")
def took_the_place_of_another(hook: HookRecord) -> Words | None:
    if not hook.overwrote:
        return None
    return Words(
        f"the new hook has the same id as a hook of the loaded model, and replaced that hook on {hook.owner.name!r}",
        "model.load_state_dict(torch.load(path))  # load only the weights, then register the hooks again",
    )


def leaks(seen: Recording) -> Iterator[Finding]:
    """Find the tensors that hooks keep alive, grouped by the line that registered the hooks."""
    groups: dict[str, list[HookRecord]] = {}
    for hook in seen.hooks:
        groups.setdefault(hook.caller.place, []).append(hook)
    leaked = {id(h.owner.now()) for h in seen.hooks if h.holder is not None}
    for hooks in groups.values():
        shown = [one for h in hooks for one in h.kept if not h.keeps_copies]
        kept = [moment for moment, ref in shown if (value := ref()) is not None and id(value) not in leaked]
        if len({moment.backwards for moment in kept}) >= HABIT:
            yield from found(keeps_graphs(hooks[0], len(kept), len(shown)))
        holding = [h for h in hooks if h.holder is not None]
        alive = [h for h in holding if h.owner.now() is not None]
        if alive:
            yield from found(holds_its_tensor(alive[0], len(alive), len(holding)))
