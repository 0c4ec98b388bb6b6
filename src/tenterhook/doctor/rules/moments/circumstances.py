"""Implement the rules for forward hooks that fire in other passes, or receive other data, than their authors expect."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from tenterhook.doctor.edits import hook_functions as edits
from tenterhook.doctor.observe.distribution import DDP
from tenterhook.doctor.observe.hook_kinds import BACKWARD, FORWARD, TENSOR
from tenterhook.doctor.observe.hook_record import HookRecord
from tenterhook.doctor.reading.bytecode import loads_attribute
from tenterhook.doctor.rules.no_effect import changes_the_layers_before, returned_what_it_was_given
from tenterhook.doctor.rules.registry import Subject, Words, plural, rule
from tenterhook.doctor.rules.silent.not_installed import only_a_part


@rule("TH237")
def keys_with_another_prefix(about: Subject, missing: Sequence[str], unexpected: Sequence[str]) -> Words | None:
    """Find parameters that were not loaded, although the state dict has their keys with another prefix."""
    pairs = [(m, u) for m in missing for u in unexpected if _ends(m, u) or _ends(u, m)]
    if not pairs:
        return None
    count = len({key for key, _ in pairs})
    return Words(
        f"load_state_dict(strict=False) left {plural(count, 'parameter')} as they were: the model has {pairs[0][0]!r}, "
        f"and the state dict has {pairs[0][1]!r}; a hook that renames keys may be missing, or be on another module",
        "model.load_state_dict(state_dict)  # strict=True raises an error that lists these keys",
    )


def _ends(key: str, end: str) -> bool:
    """Return True if a key consists of a prefix and another key that has at least two parts."""
    return "." in end and key.endswith(f".{end}")


@rule("TH316")
def changes_an_unused_part(hook: HookRecord) -> Words | None:
    used, unused = hook.parts
    if used or not unused:
        return None
    return Words(
        f"the hook replaced some values of the output; {plural(unused, 'time')}, a backward pass began at a loss that "
        "uses only the other values",
        "return (output[0], changed, *output[2:])  # change the value that the model uses",
    )


@rule("TH424")
def before_the_training(hook: HookRecord) -> Words | None:
    """Find a hook that collects values in evaluation mode, also in passes before the first backward pass."""
    seen = hook.circumstances
    if hook.kind not in FORWARD or not hook.timeline.backwards or hook.foreign:
        return None
    if hook.fired == 1 and seen.first_without_grad and seen.early + seen.late < 2 and hook.removed is not None:
        if hook.removed.backwards:
            return None
        return Words(
            "the hook fired once, in a pass without gradients before the training, and removed itself; the pass may be "
            "a dry run of a library, with other data",
            "if torch.is_grad_enabled():  # in the hook: wait for the first training pass\n"
            "    initialize(module, args)\n    handle.remove()",
        )
    if not (seen.early and seen.late and hook.stored) or hook.stored[0].training:
        return None
    return Words(
        f"the hook stored values in {plural(seen.early, 'firing')} before the training began, for example in a sanity "
        f"check of the trainer, and in {plural(seen.late, 'firing')} after it began",
        "kept.clear()  # when the training begins; or do not store values during trainer.sanity_checking",
    )


@rule("TH425")
def several_passes_in_a_step(hook: HookRecord) -> Words | None:
    """Find a forward hook that counts its calls although a step of the optimizer has several forward passes."""
    passes, (first, last) = hook.circumstances.training_passes, hook.circumstances.steps
    steps = last - first + 1
    if hook.kind not in FORWARD or hook.foreign or hook.recomputed or steps < 2 or passes < 1.5 * steps:
        return None
    if not hook.counts and not (hook.combines and _is_running(hook)):
        return None
    return Words(
        f"the hook fired in {passes} forward passes during {plural(steps, 'step')}, and each time changed its count or "
        "its running value",
        "optimizer.register_step_post_hook(lambda *_: schedule.advance())  # once for each step",
    )


def _is_running(hook: HookRecord) -> bool:
    """Return True if the hook has stored a number or a tensor several times in one place."""
    slots = [(one.slot.container, one.slot.key) for one in hook.stored if isinstance(one.slot.key, str)]
    kinds = {one.kind for one in hook.stored if isinstance(one.slot.key, str)}
    return len(slots) > len(set(slots)) and bool(kinds & {"int", "float", "Tensor"})


@rule("TH426")
def tokens_with_a_cache(hook: HookRecord) -> Words | None:
    first, later = hook.circumstances.tokens
    if hook.kind not in FORWARD or not later or not (hook.changed or hook.output_changed):
        return None
    return Words(
        f"the module received {first} tokens in the first call of a pass, and one token in each of "
        f"{plural(later, 'later call')}; positions in the whole sequence are not positions in this tensor",
        "positions = kwargs['cache_position']  # register the hook with with_kwargs=True; or count the tokens",
    )


@rule("TH427")
def inside_a_fused_layer(hook: HookRecord) -> Words | None:
    place = hook.owner.place
    module = place.module() if place is not None else None
    limits = hook.reading is not None and hook.reading.limits
    if not isinstance(module, nn.RNNBase) or not limits or not hook.changed or hook.kind not in (*BACKWARD, TENSOR[0]):
        return None
    return Words(
        f"{type(module).__name__} computes all time steps in one operation; the hook limits the gradient of the whole "
        "sequence, not the gradient that passes from one time step to the one before",
        "for x in sequence:\n    h = cell(x, h)  # nn.GRUCell, for example\n    h.register_hook(fn)",
    )


@rule("TH541")
def not_in_evaluation_mode(hook: HookRecord) -> Words | None:
    layer = hook.circumstances.unready
    if hook.kind not in FORWARD or layer is None or hook.foreign or not (hook.stored or hook.changed):
        return None
    return Words(
        f"gradients were disabled, but {layer} was in training mode; it computes other values than in evaluation mode",
        "model.eval()  # before the pass; a model inside another one follows the mode of the outer one",
    )


@rule("TH542")
def one_sample_of_vmap(hook: HookRecord) -> Words | None:
    if not hook.circumstances.vmapped:
        return None
    return Words(
        f"in {plural(hook.circumstances.vmapped, 'firing')}, vmap called the hook; it then sees one sample, so a mean "
        "or a norm over the first dimension is not one over the batch",
        "out = model(batch)  # outside vmap, the hook sees the batch",
    )


@rule("TH543")
def rows_of_a_packed_sequence(hook: HookRecord) -> Words | None:
    if not hook.circumstances.packed or hook.code is None or not loads_attribute(hook.code, "data"):
        return None
    return Words(
        "the hook reads .data of a PackedSequence; its rows are ordered by time step, and within a time step by the "
        "length of the sequences, not sequence by sequence",
        "padded, lengths = nn.utils.rnn.pad_packed_sequence(output, batch_first=True)",
    )


@rule("TH544")
def equal_halves(hook: HookRecord) -> Words | None:
    if not hook.circumstances.doubled or not (hook.stored or hook.changed or hook.output_changed) or hook.foreign:
        return None
    return Words(
        "the two halves of the model's batch are equal, as in guided sampling, which runs each sample with and without "
        "its condition; the hook treats both halves alike",
        "unconditional, conditional = output.chunk(2)  # in the order in which the program joins them",
    )


@rule("TH545")
def gradients_of_a_mean(hook: HookRecord) -> Words | None:
    if hook.mean_over < 2:
        return None
    return Words(
        f"the loss is a mean over the batch, so each of the {hook.mean_over} rows of the gradient is divided by the "
        "number of samples; the norms and limits of single samples are too small by this factor",
        "loss = criterion(model(x), y).sum()  # with reduction='none'; or multiply by the number of samples",
    )


@rule("TH546")
def keyed_by_id(hook: HookRecord) -> Words | None:
    keyed = [one for one in hook.stored if one.by_id]
    if not keyed:
        return None
    return Words(
        f"the hook stored {plural(len(keyed), 'value')} in {keyed[0].slot.name} under the id of a tensor; when the "
        "tensor is freed, another tensor may get the same id",
        "cache[name] = value  # a key that the program chooses",
    )


@rule("TH547")
def values_of_one_rank(hook: HookRecord) -> Words | None:
    if hook.spread != DDP or hook.kind not in FORWARD or not hook.stored or hook.foreign:
        return None
    return Words(
        "the model is inside DistributedDataParallel; each rank stores the values of its own batches, and DDP does not "
        "combine them",
        "torch.distributed.all_reduce(total)  # on all ranks, before the values are used",
    )


@rule("TH549")
def term_without_a_graph(hook: HookRecord) -> Words | None:
    if hook.foreign or not (hook.constant_terms or hook.cut_terms):
        return None
    if not hook.constant_terms:
        return (
            None
            if hook.reached_terms
            else Words(
                f"the hook stored the output without its graph; then the loss reached no parameter of the module, in "
                f"{plural(hook.cut_terms, 'case')}, although the module had run with gradients",
                "kept[name] = output  # without detach(), if a loss is computed from it",
                edit=edits.store_with_the_graph,
            )
        )
    return Words(
        f"in {plural(hook.constant_terms, 'case')}, the loss was a sum of two terms, one of them without a graph, and "
        "the hook had stored a value without its graph; a term that is computed from such a value changes no parameter",
        "kept[name] = output  # without detach(), if a loss is computed from it",
        edit=edits.store_with_the_graph,
    )


@rule("TH548")
def variable_was_rebound(hook: HookRecord) -> Words | None:
    for one in hook.variables:
        one.look()
    rebound = next((one for one in hook.variables if one.rebound), None)
    if rebound is None or not hook.stored:
        return None
    return Words(
        f"the hook stores its values in the object to which {rebound.text} referred when the hook was registered; "
        f"{rebound.text} refers to another object now",
        f"{rebound.text}.clear()  # instead of assigning a new container",
    )


#: the rules of this file that apply to every hook, the most certain ones first
OF_A_HOOK = (
    variable_was_rebound,
    changes_an_unused_part,
    term_without_a_graph,
    rows_of_a_packed_sequence,
    one_sample_of_vmap,
    equal_halves,
    keyed_by_id,
    gradients_of_a_mean,
    inside_a_fused_layer,
    tokens_with_a_cache,
    several_passes_in_a_step,
    not_in_evaluation_mode,
    before_the_training,
    values_of_one_rank,
)

#: codes of findings that often describe what the program means; they come after the others
LIKELY_MEANT = tuple(
    one.code
    for one in (
        changes_the_layers_before,
        returned_what_it_was_given,
        several_passes_in_a_step,
        not_in_evaluation_mode,
        before_the_training,
        only_a_part,
    )
)
