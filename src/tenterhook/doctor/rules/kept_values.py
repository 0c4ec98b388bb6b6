"""Implement the rules for values that a hook stores or reads, and that are not what the program expects."""

from __future__ import annotations

from collections.abc import Iterator

from tenterhook import torch_internals as private
from tenterhook.doctor.findings import Finding
from tenterhook.doctor.observe.hook_record import FORWARD, TENSOR, HookRecord
from tenterhook.doctor.observe.stored import Slot, Stored
from tenterhook.doctor.patch.recording import Recording
from tenterhook.doctor.rules.registry import Words, found, plural, rule


@rule("TH506")
def kept_values_changed(hook: HookRecord) -> Words | None:
    over = [ref for ref, version in hook.aliased if (grad := ref()) is not None and private.version(grad) != version]
    if over:
        return Words(
            f"the hook kept {plural(len(over), 'gradient')} that changed later", "kept.append(p.grad.detach().clone())"
        )
    for one in hook.stored:
        one.look()
    changed = [one for one in hook.stored if one.overwritten]
    if not changed:
        return None
    return Words(
        f"{len(changed)} of {plural(len(hook.stored), 'value')} that the hook stored in {_place(changed[0].slot)} "
        "changed in place after the hook had returned, for example in an in-place activation",
        f"{_place(changed[0].slot)} = output.detach().clone()"
        if changed[0].slot.key is not None
        else f"{changed[0].slot.name}.append(output.detach().clone())",
    )


@rule("TH520")
def one_key_for_several_modules(hook: HookRecord, slot: Slot, names: list[str]) -> Words:
    return Words(
        f"in one forward pass, the hooks on {_listed(names)} stored their values in {_place(slot)}; only the last "
        "value is left",
        f"module.register_forward_hook(functools.partial(fn, name))  # {slot.name}[name] = output in fn",
    )


@rule("TH521")
def only_the_last_call(hook: HookRecord, slot: Slot, calls: int, within: str) -> Words:
    pass_name = "one call of generate()" if within == "generate" else "one forward pass"
    return Words(
        f"in {pass_name}, the hook fired {calls} times and each time replaced the value in {_place(slot)}; only the "
        "last value is left",
        f"{_place(slot)}.append(output.detach())  # keep one value for each call"
        if slot.key is not None
        else "kept.append(output.detach())  # keep one value for each call",
    )


@rule("TH522")
def stored_none(hook: HookRecord) -> Words | None:
    slots: dict[tuple[int, object], list[Stored]] = {}
    for one in hook.stored:
        slots.setdefault((one.slot.container, _hashable(one.slot.key)), []).append(one)
    for values in slots.values():
        if all(one.kind == "NoneType" for one in values):
            return Words(
                f"the value that the hook stored in {_place(values[0].slot)} was None in {plural(len(values), 'call')}",
                "# let the module return the value, for example with need_weights=True or output_attentions=True",
            )
    return None


@rule("TH523")
def both_phases(hook: HookRecord) -> Words | None:
    slots: dict[int, set[bool]] = {}
    for one in hook.stored:
        if one.slot.key is None:
            slots.setdefault(one.slot.container, set()).add(one.training)
    mixed = next((one for one in hook.stored if one.slot.key is None and len(slots[one.slot.container]) > 1), None)
    if mixed is None:
        return None
    return Words(
        f"{mixed.slot.name} contains values from training mode and from evaluation mode",
        f"if module.training:\n    {mixed.slot.name}.append(output.detach())",
    )


@rule("TH524")
def without_keyword_arguments(hook: HookRecord) -> Words | None:
    if not hook.lacks_kwargs or hook.reading is None or not hook.reads_args:
        return None
    names = ", ".join(sorted(hook.lacks_kwargs))
    register = f"module.{hook.kind}(fn, with_kwargs=True)"
    signature = "fn(module, args, kwargs)" if hook.kind == FORWARD[0] else "fn(module, args, kwargs, output)"
    return Words(
        f"the module was called with keyword arguments only ({names}); the hook reads its second argument, which is "
        "then empty",
        f"{register}  # PyTorch then calls {signature}",
    )


@rule("TH525")
def parameter_for_its_gradient(hook: HookRecord) -> Words | None:
    if hook.kind != TENSOR[1] or not hook.fired or hook.reads_parameter is None:
        return None
    return Words(
        f"the hook reads {hook.reads_parameter}; PyTorch passes the parameter, and its gradient is in .grad",
        f"{hook.reads_parameter.partition('.')[0]}.grad{hook.reads_parameter[hook.reads_parameter.index('.') :]}",
    )


@rule("TH526")
def replaced_output(hook: HookRecord) -> Words | None:
    if hook.odd_return is None:
        return None
    return Words(
        f"the hook returned {hook.odd_return}, which replaced the output of the module",
        "return None  # or return a value like the output",
    )


@rule("TH527")
def fewer_arguments(hook: HookRecord) -> Words | None:
    if hook.fewer_args is None:
        return None
    returned, given = hook.fewer_args
    return Words(
        f"the module was called with {plural(given, 'positional argument')}, and the pre-hook returned {returned}; "
        "PyTorch passes only what the hook returns",
        "return (changed, *args[1:])  # every argument, the changed ones and the others",
    )


@rule("TH528")
def ignores_the_prefix(hook: HookRecord) -> Words | None:
    if not hook.prefix or not hook.ignores_prefix:
        return None
    return Words(
        f"the module is inside another one, so its keys begin with {hook.prefix!r}; the hook does not read the prefix "
        "that PyTorch passes",
        'state_dict[prefix + "new"] = state_dict.pop(prefix + "old")',
    )


def stored_together(seen: Recording) -> Iterator[Finding]:
    """Find values that other values of the same forward pass replaced."""
    slots: dict[tuple[int, object, int], list[tuple[HookRecord, Stored]]] = {}
    for hook in seen.hooks:
        for one in hook.stored:
            if one.slot.key is not None and one.within is not None and not hook.foreign:
                slots.setdefault((one.slot.container, _hashable(one.slot.key), one.within.number), []).append(
                    (hook, one)
                )
    told: set[tuple[int, object]] = set()
    for (container, key, _), stored in slots.items():
        if (container, key) in told or all(one.kind in ("int", "float", "str", "bool") for _, one in stored):
            continue
        hooks = list(dict.fromkeys(hook for hook, _ in stored))
        first, one = stored[0]
        if len({hook.owner.id for hook in hooks}) > 1:
            told.add((container, key))
            yield from found(one_key_for_several_modules(first, one.slot, [hook.owner.name for hook in hooks]))
        elif len(stored) > 1 and one.within is not None:
            told.add((container, key))
            yield from found(only_the_last_call(first, one.slot, len(stored), one.within.name))


def _hashable(key: object) -> object:
    try:
        hash(key)
    except TypeError:
        return repr(key)
    return key


def _place(slot: Slot) -> str:
    """Return the place of a stored value, as the program would write it."""
    if slot.key is None:
        return slot.name
    return f"{slot.name}.{slot.key}" if slot.attribute else f"{slot.name}[{slot.key!r}]"


def _listed(names: list[str]) -> str:
    shown = [repr(name) for name in names[:3]]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(shown) + more
