"""Find hook problems that are specific to DDP, FSDP2 and tensor parallelism, and differences between ranks."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tenterhook.doctor.findings import Finding
from tenterhook.doctor.observe.distribution import DDP, Read
from tenterhook.doctor.observe.hook_kinds import TENSOR
from tenterhook.doctor.observe.hook_record import HookRecord
from tenterhook.doctor.patch.recording import Recording
from tenterhook.doctor.rank_comparison import RankDiff, drift_of, line_of
from tenterhook.doctor.rules.no_effect import cleared_before_the_step, limits
from tenterhook.doctor.rules.registry import Subject, Words, found, plural, rule


@rule("TH111")
def on_some_ranks(hook: HookRecord, diff: RankDiff) -> Words | None:
    if hook.spread is None or line_of(hook) in diff.lines:
        return None
    acts = hook.changed or hook.in_place or hook.drifted or hook.dropped
    return Words(
        f"rank {diff.here} has the hook, but rank {diff.by} does not; the hook "
        + ("affects training on all ranks" if acts else "only observes")
        + f" and fired {plural(hook.fired, 'time')}",
        f"target.{hook.kind}(fn)  # on every rank; to log on one rank, check dist.get_rank() in fn",
        # The stages of a pipeline run different code, so their hooks may differ.
        as_note=not acts or "torch.distributed.pipelining" in sys.modules,
    )


@rule("TH222")
def shard_is_not_in_the_graph(hook: HookRecord) -> Words | None:
    if hook.kind != TENSOR[0]:
        return None
    ran = plural(len(hook.missed_backwards), "time")
    return Words(
        f"the backward pass ran {ran}; the graph contains the full parameter, which FSDP2 gathers for each forward "
        "pass, but not the shard that the hook is on",
        "p.register_post_accumulate_grad_hook(fn)  # fn(p): p.grad is this rank's shard of the reduced gradient\n"
        f'th.hook(model, fn, on="{hook.owner.name}", at="grad_final", optimizer=optimizer)  # or use fn(grad)',
    )


@rule("TH223")
def not_synced(hook: HookRecord) -> Words | None:
    if not all(meeting.unsynced for meeting in hook.missed_backwards):
        return None
    ran = plural(len(hook.missed_backwards), "time")
    return Words(
        f"the backward pass ran {ran}, each time after set_requires_gradient_sync(False); FSDP2 accumulates unreduced "
        "gradients and does not set .grad",
        "model.set_requires_gradient_sync(True)  # before the last backward pass of a step; the hook receives the sum",
    )


@rule("TH412")
def before_the_mean(hook: HookRecord) -> Words | None:
    if hook.uneven and limits(hook):
        return Words(
            f"the hook limited {plural(hook.changed, 'gradient')} on this rank before DDP averaged them over the "
            "ranks; averaging limited gradients is not the same as limiting the mean gradient",
            f'th.hook(model, th.clip_norm(1.0), on="{hook.owner.name}", at="grad_final", optimizer=optimizer)\n'
            "clip_grad_norm_(model.parameters(), 1.0)  # or call this between the backward pass and the step",
        )
    if hook.uneven or hook.changed or hook.drifted or hook.dropped:
        return None
    return Words(
        f"the hook received this rank's gradient {plural(hook.fired, 'time')}, not the mean that the optimizer uses",
        f'th.hook(model, fn, on="{hook.owner.name}", at="grad_final", optimizer=optimizer)  # receives the mean',
        as_note=True,
    )


@rule("TH512")
def number_of_a_part(about: Subject, read: Read) -> Words:
    value = f"{read.value:.4g}" if isinstance(read.value, float) else str(read.value)
    return Words(
        f"{read.how}() returned {value}; the placement is {read.placements}, so each of the {read.ranks} ranks holds "
        "part of the result, and the parts were not combined",
        "x.full_tensor().item()  # combines the parts; call it on every rank\n"
        "x.to_local().item()     # or read this rank's part explicitly",
    )


@rule("TH513")
def drifts_apart(hook: HookRecord, seen: Recording, diff: RankDiff | None) -> Words:
    apart = diff is not None and diff.drifts.get(line_of(hook)) != drift_of(hook, seen.hooks)
    return Words(
        f"the hook changed the parameter in {hook.drifted} of {hook.fired} firings, before DDP averaged the gradients"
        + (f"; rank {diff.by} then had different values" if apart and diff is not None else ""),
        "loss.backward()   # returns after DDP has reduced the gradients\n"
        "optimizer.step()  # makes the same step on every rank",
        as_note=not apart,
    )


@rule("TH514")
def not_reduced(about: Subject, strangers: dict[str, str]) -> Words:
    name, how = next(iter(strangers.items()))
    more = len(strangers) - 1
    return Words(
        f"{name!r} was {how} after DDP was created, so DDP does not reduce its gradient"
        + (f" (the same applies to {plural(more, 'other parameter')})" if more else ""),
        "model = DistributedDataParallel(net)  # after all parameters are added and unfrozen",
    )


def across_ranks(seen: Recording, diff: RankDiff | None) -> Iterator[Finding]:
    """Find unreduced gradients, hooks that only some ranks have, and numbers read from partial DTensors."""
    for replica in seen.events.spread.replicas:
        if replica.strangers:
            about = Subject(target=next(iter(replica.strangers)), place=replica.place)
            yield from found(not_reduced(about, replica.strangers))
    for hook in seen.hooks if diff is not None else ():
        assert diff is not None
        yield from found(on_some_ranks(hook, diff))
    for read in seen.events.spread.reads.values():
        yield from found(number_of_a_part(_reader(read), read))


def _reader(read: Read) -> Subject:
    if read.hook is None:
        return Subject(place=read.place)
    return Subject(read.hook.function, read.hook.target, by=read.hook.kind, place=read.place)


def before_reduction(hook: HookRecord, seen: Recording, diff: RankDiff | None) -> Iterator[Finding]:
    """Find problems with a tensor hook that runs before DDP reduces the parameter's gradient."""
    if hook.spread != DDP or hook.kind not in TENSOR or not hook.fired:
        return
    if hook.drifted:
        yield from found(drifts_apart(hook, seen, diff))
    elif hook.dropped:
        yield from found(cleared_before_the_step(hook, by_itself=True))
    yield from found(before_the_mean(hook))
