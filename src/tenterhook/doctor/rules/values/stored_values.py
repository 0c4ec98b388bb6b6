"""Implement the rules for values that a hook stores or reads, and that are not what the program expects."""

from __future__ import annotations

from collections.abc import Iterator

from tenterhook import torch_internals as private
from tenterhook.doctor.edits import hook_functions as edits
from tenterhook.doctor.findings import Finding
from tenterhook.doctor.observe.hook_kinds import BACKWARD, FORWARD, TENSOR
from tenterhook.doctor.observe.hook_record import HookRecord
from tenterhook.doctor.observe.values.stored import Slot, Stored, shown
from tenterhook.doctor.patch.recording import Recording
from tenterhook.doctor.patch.saved_tensors import SavedTensorsHooks
from tenterhook.doctor.reading.program_text import first_items, reverses
from tenterhook.doctor.rules.registry import Subject, Words, found, plural, rule

#: how findings name a pass
_PASSES = {"generate": "one call of generate()", "backward": "one backward pass"}


@rule("TH506")
def kept_values_changed(hook: HookRecord) -> Words | None:
    over = [ref for ref, version in hook.aliased if (grad := ref()) is not None and private.version(grad) != version]
    if over:
        return Words(
            f"the hook kept {plural(len(over), 'gradient')} that changed later",
            "kept.append(p.grad.detach().clone())",
            edit=edits.store_a_copy,
        )
    for one in hook.stored:
        one.look()
    changed = [one for one in hook.stored if one.overwritten]
    if not changed:
        return None
    live = all(one.graph for one in changed)  # the program probably wants the tensor as it is at the end
    return Words(
        f"{len(changed)} of {plural(len(hook.stored), 'value')} that the hook stored in {_place(changed[0].slot)} "
        "changed in place after the hook had returned, for example in an in-place activation",
        f"{_place(changed[0].slot)} = output.detach().clone()"
        if changed[0].slot.key is not None
        else f"{changed[0].slot.name}.append(output.detach().clone())",
        as_note=live,
        edit=edits.store_a_copy,
    )


@rule("TH520")
def one_key_for_several_modules(hook: HookRecord, slot: Slot, names: list[str], within: str) -> Words:
    return Words(
        f"in {_PASSES.get(within, 'one forward pass')}, the hooks on {_listed(names)} stored their values in "
        f"{_place(slot)}; only the last value is left",
        f"module.{hook.kind}(functools.partial(fn, name))  # {slot.name}[name] = ... in fn",
        edit=edits.bind_now,
    )


@rule("TH521")
def only_the_last_call(hook: HookRecord, slot: Slot, calls: int, within: str) -> Words:
    """Report a replaced value. `within` tells where the calls were; "passes" stands for several forward passes."""
    if within == "passes":
        return Words(
            f"{calls} forward passes ran before one backward pass, and each of them replaced the value in "
            f"{_place(slot)}, which the hook of the backward pass reads; only the last value is left",
            "kept[module].append(output.detach())  # one value for each call\n"
            "value = kept[module].pop()            # in the hook of the backward pass",
            as_note=True,
        )
    return Words(
        f"in {_PASSES.get(within, 'one forward pass')}, the hook fired {calls} times and each time replaced the value "
        f"in {_place(slot)}; only the last value is left",
        f"{_place(slot)}.append(output.detach())  # keep one value for each call"
        if slot.key is not None
        else "kept.append(output.detach())  # keep one value for each call",
        as_note=within == "generate",
    )


def last_pass_before_the_backward(seen: Recording) -> Iterator[Finding]:
    """Find a value that a second forward pass replaced before the backward pass of both, in which a hook reads it."""
    slots: dict[tuple[int, object, int], list[tuple[HookRecord, Stored]]] = {}
    for hook in seen.hooks:
        for one in hook.stored if hook.kind in FORWARD and not hook.foreign and not hook.combines else ():
            named = isinstance(one.slot.key, str) and one.within is not None and one.within.number > 0
            if named and one.grad_enabled and one.training:
                slots.setdefault((one.slot.container, one.slot.key, one.backwards), []).append((hook, one))
    readers = [hook for hook in seen.hooks if hook.kind in (*BACKWARD, *TENSOR) and hook.fired and not hook.foreign]
    told: set[str] = set()
    for (_, key, _), stored in slots.items():
        hook, first = stored[0]
        passes = len({one.within.number for _, one in stored if one.within is not None})
        read = any(one.calls_method(str(key)) or key in one.texts for one in readers)
        if passes > 1 and passes == len(stored) and read and hook.caller.place not in told:
            told.add(hook.caller.place)
            yield from found(only_the_last_call(hook, first.slot, passes, "passes"))


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
    phases: dict[int, set[bool]] = {}
    graphs: dict[int, set[bool]] = {}
    together = [one for one in hook.stored if one.slot.key is None or hook.adds]
    for one in together:
        phases.setdefault(one.slot.container, set()).add(one.training)
        graphs.setdefault(one.slot.container, set()).add(one.grad_enabled)
    mixed = next((one for one in together if len(phases[one.slot.container]) > 1), None)
    if mixed is not None:
        return Words(
            f"{mixed.slot.name} contains values from training mode and from evaluation mode",
            f"if module.training:\n    {mixed.slot.name}.append(output.detach())",
        )
    mixed = next((one for one in together if len(graphs[one.slot.container]) > 1), None)
    if mixed is None or hook.recomputed or hook.kind not in FORWARD:
        return None
    return Words(
        f"the hook appends values to {mixed.slot.name} in passes with gradients and in passes under no_grad",
        f"if torch.is_grad_enabled():\n    {mixed.slot.name}.append(output.detach())",
    )


@rule("TH551")
def reads_the_last_value(hook: HookRecord, name: str, count: int, values: int, error: str = "") -> Words:
    """Report hooks that a loop registered. `count` is their number, `values` the number of values of the variable."""
    value = hook.late.changed[name]
    now = repr(value) if not isinstance(value, tuple) else f"another {value[0]}"
    return Words(
        (f"{error}; " if error else "")
        + f"the {count} hooks of this line read the variable {name!r} when they fire; it had {values} different values "
        f"when they were registered, and was {now} when they fired",
        f"lambda grad, {name}={name}: ...  # binds the value of each round\n"
        f"def fn(grad, {name}={name}): ...  # or in a function"
        if hook.kind in TENSOR
        else f"functools.partial(fn, {name})  # binds the value of each round",
        edit=edits.bind(name),
    )


@rule("TH552")
def first_of_all_passes(hook: HookRecord) -> Words | None:
    if hook.code is None or hook.foreign:
        return None
    lists: dict[int, list[Stored]] = {}
    for one in hook.stored:
        if one.slot.key is None and one.within is not None and one.kind == "Tensor":
            lists.setdefault(one.slot.container, []).append(one)
    for stored in lists.values():
        last, passes = stored[-1].slot, {one.within.number for one in stored if one.within is not None}
        whole = last.length >= len(stored)  # nothing was removed
        if len(passes) > 1 and whole and last.name.rpartition(".")[2] in first_items(hook.code.co_filename):
            return Words(
                f"{last.name} contains the values of {len(passes)} passes, because it is never cleared; the program "
                f"reads {last.name}[0], which is the value of the first pass",
                f"{last.name}.clear()  # before each pass\nvalue = {last.name}[-1]  # or read the last value",
            )
    return None


@rule("TH416")
def in_backward_order(hook: HookRecord, slot: Slot, names: list[str]) -> Words:
    value = "grad" if hook.kind in TENSOR else "grad_output[0]"
    return Words(
        f"in one backward pass, the hooks on {_listed(names)} appended their values to {slot.name}; the last layer "
        "comes first",
        f"{slot.name}[name] = {value}.detach()  # store each value under its name",
        edit=edits.insert_at_the_front,
    )


@rule("TH532")
def bound_to_its_context(hook: HookRecord) -> Words | None:
    where = next((one.bound_to for one in hook.stored if one.bound_to is not None), None)
    if where is None:
        return None
    if where == "torch.func":
        return Words(
            "the hook stored a tensor of a torch.func transformation, which cannot be used after the transformation "
            "has ended",
            "return features, loss  # return the values from the function that torch.func transforms",
        )
    return Words(
        "the hook stored a tensor from inference_mode, which cannot be used to compute gradients",
        "with torch.no_grad():  # instead of torch.inference_mode()\n    model(x)",
    )


@rule("TH535")
def without_graph_in_a_checkpoint(hook: HookRecord) -> Words | None:
    detaches = any(map(hook.calls_method, ("detach", "item", "no_grad", "tolist", "cpu")))
    bare = sum(
        one.training and (one.shared or (one.kind == "Tensor" and not detaches)) and not one.grad_enabled
        for one in hook.stored
    )
    if not bare or not hook.recomputed:
        return None
    return Words(
        f"the first forward pass of a reentrant checkpoint, which runs without gradients, computed {bare} of "
        f"{plural(len(hook.stored), 'stored value')}; a loss that is computed from them gives no gradient",
        "checkpoint(block, x, use_reentrant=False)",
    )


@rule("TH534")
def adds_in_half_precision(hook: HookRecord) -> Words | None:
    if hook.adds_in is None or not hook.adds:
        return None
    most = 256 if hook.adds_in == "bfloat16" else 2048
    return Words(
        f"the hook adds to a tensor of type {hook.adds_in}; from {most} on, adding 1 does not change it",
        "total = torch.zeros(size, dtype=torch.float32)",
    )


@rule("TH540")
def of_several_threads(hook: HookRecord) -> Words | None:
    slots: dict[tuple[int, object], set[str]] = {}
    for one in hook.stored:
        if one.within is None or one.within.number >= 0:  # autograd has threads of its own
            slots.setdefault((one.slot.container, _hashable(one.slot.key)), set()).add(one.thread)
    mixed = next((key for key, threads in slots.items() if len(threads) > 1), None)
    if mixed is None:
        return None
    slot = next(one.slot for one in hook.stored if (one.slot.container, _hashable(one.slot.key)) == mixed)
    return Words(
        f"{len(slots[mixed])} threads stored their values in {_place(slot)}",
        "kept = threading.local()  # one container for each thread",
    )


@rule("TH538")
def overflowed(hook: HookRecord) -> Words | None:
    if not hook.overflowed:
        return None
    return Words(
        f"in {plural(hook.overflowed, 'firing')}, the hook computed a number that is not finite from finite values, "
        "for example a norm in 16-bit precision",
        "kept.append(output.detach().float().norm())",
        edit=edits.compute_in_32_bits,
    )


@rule("TH236")
def packed_in_another_thread(about: Subject, hooks: SavedTensorsHooks, threads: set[int]) -> Words | None:
    if hooks.calls or not threads or hooks.thread in threads:
        return None
    return Words(
        "the hooks were never called: they apply only to the thread that enters the context, and all backward passes "
        f"ran in {plural(len(threads), 'other thread')}",
        "def work():\n    with saved_tensors_hooks(pack, unpack):  # in each thread\n        train()",
    )


@rule("TH553")
def looked_for_by_id(about: Subject, hooks: SavedTensorsHooks) -> Words | None:
    if not hooks.by_id or not hooks.views:
        return None
    return Words(
        f"the pack hook asks for the id of the tensor; in {hooks.views} of {plural(hooks.calls, 'call')}, it received "
        "a view of a parameter, such as weight.t() in a linear layer, which is another object",
        "known = {p.untyped_storage().data_ptr() for p in model.parameters()}\n"
        "if tensor.untyped_storage().data_ptr() in known:  # in pack: compare the memory, not the object\n"
        "    return tensor",
    )


@rule("TH537")
def another_tensor_unpacked(about: Subject, hooks: SavedTensorsHooks) -> Words | None:
    if not hooks.wrong:
        return None
    return Words(
        f"{hooks.wrong} of {plural(hooks.unpacked, 'unpacked tensor')} differ from the tensors that were packed "
        f"({hooks.difference})",
        "return tensor.to('cpu')  # in pack: return the value itself, not a key that a later call may use again",
    )


def in_order_of_the_backward_pass(seen: Recording) -> Iterator[Finding]:
    """Find a list to which the hooks of several modules append during the backward pass."""
    lists: dict[tuple[int, int], list[tuple[HookRecord, Stored]]] = {}
    for hook in seen.hooks:
        for one in hook.stored:
            backward = one.within is not None and one.within.number < 0 and hook.kind not in FORWARD
            if one.slot.key is None and one.within is not None and backward and not hook.foreign:
                lists.setdefault((one.slot.container, one.within.number), []).append((hook, one))
    told: set[int] = set()
    for (container, _), stored in lists.items():
        owners = list(dict.fromkeys(hook.owner.id for hook, _ in stored))
        if len(owners) > 1 and container not in told and not any(reverses(hook.caller.file) for hook, _ in stored[:1]):
            told.add(container)
            hooks = sorted(dict.fromkeys(hook for hook, _ in stored), key=lambda hook: hook.number)
            yield from found(in_backward_order(hooks[0], stored[0][1].slot, [hook.owner.name for hook in hooks]))


def read_after_the_loop(seen: Recording) -> Iterator[Finding]:
    """Find a variable that had a different value for each hook of a loop, and the same one when the hooks fired."""
    text = seen.failure.text.partition("\n")[0] if seen.failure is not None else ""
    error = text if "hook" in text else ""
    loops: dict[tuple[str, object, int, int], list[HookRecord]] = {}
    for hook in seen.hooks:
        if not hook.foreign and hook.late.bound:
            moment = (hook.born.backwards, hook.born.passes)
            loops.setdefault((hook.caller.place, hook.code, *moment), []).append(hook)
    for hooks in loops.values():
        keyed_late = any(one.late_key for hook in hooks for one in hook.stored)  # TH520 tells this
        for name in hooks[0].late.bound if not keyed_late else ():
            values = {hook.late.bound.get(name) for hook in hooks}
            changed = [hook for hook in hooks if name in hook.late.changed]
            if len(values) > 1 and changed:
                yield from found(reads_the_last_value(changed[0], name, len(hooks), len(values), error))
                break


def stored_together(seen: Recording) -> Iterator[Finding]:
    """Find values that other values of the same forward pass replaced."""
    slots: dict[tuple[int, object, int], list[tuple[HookRecord, Stored]]] = {}
    for hook in seen.hooks:
        if len({one.thread for one in hook.stored}) > 1:
            continue  # the passes of several threads cannot be separated
        for one in hook.stored:
            inner = one.slot.key is not None or one.slot.name.endswith("]")
            if inner and one.within is not None and not hook.foreign and not hook.combines:
                slots.setdefault((one.slot.container, _hashable(one.slot.key), one.within.number), []).append(
                    (hook, one)
                )
    told: set[tuple[int, object]] = set()
    for (container, key, _), stored in slots.items():
        plain = all(one.kind in ("int", "float", "str", "bool") and not one.late_key for _, one in stored)
        if (container, key) in told or (plain and key is not None):
            continue
        hooks = list(dict.fromkeys(hook for hook, _ in stored))
        first, one = stored[0]
        if key is None and len(hooks) < max(2, one.slot.siblings):
            continue  # a list that only some of the hooks append to
        if len({hook.owner.id for hook in hooks}) > 1 and one.within is not None:
            told.add((container, key))
            yield from found(
                one_key_for_several_modules(first, one.slot, [hook.owner.name for hook in hooks], one.within.name)
            )
        elif key is not None and len(stored) > 1 and one.within is not None:
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
    return f"{slot.name}.{slot.key}" if slot.attribute else f"{slot.name}[{shown(slot.key)}]"


def _listed(names: list[str]) -> str:
    shown = [repr(name) for name in names[:3]]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(shown) + more
