"""What goes wrong across ranks: under DDP, FSDP2 and tensor parallel, and between one rank's hooks and another's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tenterhook.doctor.findings import Finding, finding, many
from tenterhook.doctor.observe.distribution import DDP
from tenterhook.doctor.observe.hook_record import TENSOR, HookRecord, said
from tenterhook.doctor.patch.recording import Recording
from tenterhook.doctor.rules.rank_comparison import RankDiff, drift_of, line_of


def of_a_shard(hook: HookRecord) -> Finding | None:
    """Of a parameter that FSDP2 shards."""
    name, times = hook.owner.name, f"{many(len(hook.meetings), 'backward')} ran"
    if hook.kind == TENSOR[0]:
        return said(
            hook, "TH222", f"{times}; the graph has the whole parameter, which FSDP2 makes for each forward, and not "
            "the shard that the hook is on",
            "p.register_post_accumulate_grad_hook(fn)  # fn(p): p.grad is reduced, and this rank's shard\n"
            f'th.hook(model, fn, on="{name}", at="grad_final", optimizer=optimizer)  # fn(grad), the same',
        )  # fmt: skip
    if all(meeting.unsynced for meeting in hook.meetings):
        return said(
            hook, "TH223", f"{times}, each after set_requires_gradient_sync(False): FSDP2 adds up what is not reduced, "
            "and fills no .grad",
            "model.set_requires_gradient_sync(True)  # before the last backward of a step: the hook gets the sum",
        )  # fmt: skip
    return None


def sharded_since(hook: HookRecord) -> Finding:
    name, times = hook.owner.name, f"{many(len(hook.meetings), 'backward')} ran"
    return said(
        hook, "TH205",
        f"{times}; fully_shard or parallelize_module put a DTensor at {name!r} since, without the hook",
        f'th.hook(model, fn, on="{name}", at="grad_final", optimizer=optimizer)  # by name\n'
        "p.register_post_accumulate_grad_hook(fn)  # or on what stands there after fully_shard(model)",
    )  # fmt: skip


def before_the_mean(hook: HookRecord, exam: Recording, beside: RankDiff | None) -> Iterator[Finding]:
    """Of a parameter that DDP reduces: every tensor hook comes before that."""
    if hook.spread != DDP or hook.kind not in TENSOR or not hook.fired:
        return
    if hook.drifted:
        apart = beside is not None and beside.drifts.get(line_of(hook)) != drift_of(hook, exam.hooks)
        yield said(
            hook, "TH513",
            f"it changed the parameter in {hook.drifted} of {hook.fired} firings, before DDP took the mean"
            + (f"; rank {beside.by} had other numbers after that" if apart and beside is not None else ""),
            "loss.backward()   # returns when DDP has reduced\noptimizer.step()  # the same on every rank",
            lightly=not apart,
        )  # fmt: skip
    elif hook.dropped:
        yield said(
            hook, "TH308", f"it set .grad to None in {hook.dropped} of {hook.fired} firings, before DDP reduced it: "
            "DDP puts zeros there",
            "loss.backward()\noptimizer.step()\noptimizer.zero_grad()  # after the step",
        )  # fmt: skip
    limits = hook.reading is not None and hook.reading.limits
    if hook.uneven and limits:
        yield said(
            hook, "TH412", f"it limited {many(hook.changed, 'gradient')} of this rank; DDP takes the mean after that, "
            "and the mean of what is limited is not the limited mean",
            f'th.hook(model, th.clip_norm(1.0), on="{hook.owner.name}", at="grad_final", optimizer=optimizer)\n'
            "clip_grad_norm_(model.parameters(), 1.0)  # or between backward and step",
        )  # fmt: skip
    elif not hook.uneven and not hook.changed and not hook.drifted and not hook.dropped:
        yield said(
            hook, "TH412", f"it saw {many(hook.fired, 'gradient')} of this rank, and not the means that the optimizer "
            "uses",
            f'th.hook(model, fn, on="{hook.owner.name}", at="grad_final", optimizer=optimizer)  # the mean',
            lightly=True,
        )  # fmt: skip


def across_ranks(exam: Recording, beside: RankDiff | None) -> Iterator[Finding]:
    yield from _unreduced(exam)
    yield from _on_some_ranks(exam, beside)
    yield from _read_of_parts(exam)


def _unreduced(exam: Recording) -> Iterator[Finding]:
    for replica in exam.course.spread.replicas:
        if replica.strangers:
            name, how = next(iter(replica.strangers.items()))
            more = len(replica.strangers) - 1
            yield finding(
                "TH514", f"{name!r} was {how} after DDP was made, and has the gradient of this rank alone"
                + (f" (so have {more} more)" if more else ""),
                "model = DistributedDataParallel(net)  # when every parameter stands where it will, and is unfrozen",
                target=name, place=replica.place,
            )  # fmt: skip


def _read_of_parts(exam: Recording) -> Iterator[Finding]:
    for read in exam.course.spread.reads.values():
        hook = read.hook
        found = finding(
            "TH512", f"{read.how}() gave {_short(read.value)}: {read.placements} says that {read.ranks} ranks hold a "
            "part of it each, which nothing has put together",
            "x.full_tensor().item()  # puts it together; every rank has to call it\n"
            "x.to_local().item()     # or this rank's part, and says so",
            place=read.place,
        )  # fmt: skip
        yield found if hook is None else replace(found, hook=hook.function, target=hook.target, by=hook.kind)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _on_some_ranks(exam: Recording, beside: RankDiff | None) -> Iterator[Finding]:
    if beside is None:
        return
    for hook in exam.hooks:
        if hook.spread is None or line_of(hook) in beside.lines:
            continue
        acts = hook.changed or hook.in_place or hook.drifted or hook.dropped
        yield said(
            hook, "TH111", f"rank {beside.here} has it, and rank {beside.by} has not; it "
            + ("changes what both train with" if acts else "only looks") + f", and fired {many(hook.fired, 'time')}",
            f"target.{hook.kind}(fn)  # on every rank; in fn: if dist.get_rank() == 0: print(...)",
            # Stages of a pipeline are different programs.
            lightly=not acts or "torch.distributed.pipelining" in sys.modules,
        )  # fmt: skip
