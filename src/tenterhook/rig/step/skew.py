"""Find the ranks on which a hook's numbers are lowest and highest, with the first exchange of the next step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tenterhook.actions.skew import STATISTICS
from tenterhook.record import Recorder, StepTable
from tenterhook.rig.installer import Installer
from tenterhook.rig.runtime.attached_hook import AttachedHook
from tenterhook.rig.step.sharded_modifiers import reduce_rows
from tenterhook.transfers import send_to_host

#: the numbers of a hook: its statistics, and the seconds between two steps
NAMES = (*STATISTICS, "seconds")
#: what a rank without a value contributes; a value with its rank is never so small
ABSENT = -(1 << 62)
#: number of bits of a rank, and of the low bits of a value that are left out, so that both fit into 64 bits
_RANK_BITS, _CUT_BITS = 20, 21
_RANKS = (1 << _RANK_BITS) - 1


class Skew:
    """Finds the lowest and the highest numbers over the ranks, for all hooks that run the action `skew`.

    At the end of a step, the numbers of this rank are sent to the host. They travel with the first exchange of the next
    step. An integer contains a value and the rank that has it, so that the largest integer shows both.

    Args:
        installer: The hooks of the rig.
        recorder: Receives the numbers.
    """

    def __init__(self, installer: Installer, recorder: Recorder) -> None:
        self._installer = installer
        self._recorder = recorder
        #: True if all ranks have to exchange the numbers of the last step
        self.is_due = False
        #: the last step, and for each hook the numbers of this rank in that step, on their way to the host
        self._step, self._sent = -1, dict[AttachedHook, Callable[[], Tensor]]()
        #: the hooks of the last exchange
        self._exchanged: Sequence[AttachedHook] = ()
        #: when the last step ended
        self._ended = math.nan

    def mute(self) -> None:
        """Exchange nothing any more, until the program unmutes the hooks."""
        self.is_due = False
        for hook in self._installer.schedule.ranging:
            hook.mute()
            self._installer.environment.outdated.add(hook)

    @torch.no_grad()
    def measure(self, hook: AttachedHook, partials: Mapping[str, Tensor]) -> None:
        """Send the numbers of a hook to the host. `partials` has a row for each of its sites."""
        whole = {name: reduce_rows(partials[name], one.merge) for name, one in hook.definition.partials.items()}
        numbers = hook.call(whole, {})
        seconds = self._installer.environment.clock.passes.first - self._ended
        here = torch.full_like(numbers[STATISTICS[0]], seconds)
        sent = send_to_host(torch.cat([*(numbers[name] for name in STATISTICS), here]))
        environment = self._installer.environment
        if environment.group.is_alone:
            found = partial(_given, sent, environment.group.rank)
            self._recorder.add_table(hook.hook.id, _table(environment.clock.step, hook.resolved.params, found))
        else:
            self._sent[hook] = sent

    def end_step(self) -> None:
        """End the step. If a hook was due in it, the ranks exchange its numbers in the next step."""
        environment = self._installer.environment
        self._step, self._ended = environment.clock.step, time.perf_counter()
        due = any(hook.active and not hook.status.is_muted for hook in self._installer.schedule.ranging)
        self.is_due = due and not environment.group.is_alone

    def numbers(self) -> list[int]:
        """Return what this rank contributes to the exchange. All ranks return equally many numbers."""
        self._exchanged = self._installer.schedule.ranging
        sent, self._sent, self.is_due = self._sent, {}, False
        rank = self._installer.environment.group.rank
        return [number for hook in self._exchanged for number in _given(sent.get(hook), rank)]

    def compare(self, highest: Sequence[int]) -> None:
        """Record what the maxima over all ranks say."""
        width = 2 * len(NAMES)
        for at, hook in enumerate(self._exchanged):
            found = highest[at * width : (at + 1) * width]
            if any(number != ABSENT for number in found):  # otherwise, the hook was not due, or no rank has a number
                self._recorder.add_earlier(hook.hook.id, _table(self._step, hook.resolved.params, partial(list, found)))


def encode(value: float, rank: int) -> tuple[int, int]:
    """Return two integers. Their maxima over the ranks contain the highest and the lowest value, each with its rank."""
    if math.isnan(value):
        return ABSENT, ABSENT
    bits = int(torch.tensor(value, dtype=torch.float64, device="cpu").view(torch.int64))
    ordered = (bits if bits >= 0 else -(bits & ((1 << 63) - 1))) >> _CUT_BITS
    number = (ordered << _RANK_BITS) + rank
    return number, -number


def decode(high: int, low: int) -> tuple[float, int, float, int]:
    """Return the lowest value and its rank, and the highest value and its rank, from the maxima of `encode`.

    The ranks are -1 if several ranks have a value, and all of them the same. If there is no value, the values are NaN.
    """
    if high == ABSENT:
        return math.nan, -1, math.nan, -1
    least, low_rank = _value(-low >> _RANK_BITS), -low & _RANKS
    most, high_rank = _value(high >> _RANK_BITS), high & _RANKS
    return (least, -1, most, -1) if least == most and low_rank != high_rank else (least, low_rank, most, high_rank)


def _value(ordered: int) -> float:
    value = float(torch.tensor(abs(ordered) << _CUT_BITS, device="cpu").view(torch.float64))
    return -value if ordered < 0 else value


def _given(sent: Callable[[], Tensor] | None, rank: int) -> list[int]:
    """Return what a rank contributes for a hook. This waits for the numbers of the hook."""
    values = sent().tolist() if sent is not None else [math.nan] * len(NAMES)
    return [number for value in values for number in encode(value, rank)]


def _table(step: int, params: Mapping[str, Any], maxima: Callable[[], Sequence[int]]) -> StepTable:
    """Return the rows of a hook. The maxima are read when the first row is read."""
    names = NAMES if params["time"] else STATISTICS

    def columns() -> dict[str, Tensor]:
        found, numbers = maxima(), dict[str, float]()
        for place, name in enumerate(names):
            low, low_rank, high, high_rank = decode(*found[2 * place : 2 * place + 2])
            numbers |= {f"{name}_min": low, f"{name}_min_rank": low_rank}
            numbers |= {f"{name}_max": high, f"{name}_max_rank": high_rank}
        return {name: torch.tensor([one], dtype=torch.float64, device="cpu") for name, one in numbers.items()}

    return StepTable(step, ["."], bytearray(b"\1"), columns, width=4 * len(names), device=torch.device("cpu"))
