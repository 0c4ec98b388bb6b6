"""Compare the replicas of a model before an optimizer's step, a part of the model in each step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from tenterhook import ranks
from tenterhook.actions.replicas import ReplicaDigest, flat
from tenterhook.audit import Imbalance
from tenterhook.errors import RanksError
from tenterhook.resolve.replica_sets import Tensors, common_tensors, replica_sets
from tenterhook.resolve.sharding import local
from tenterhook.rig.installer import Installer
from tenterhook.rig.points.calling import out_of_phase
from tenterhook.rig.runtime.attached_hook import AttachedHook
from tenterhook.rig.step.replica_evidence import ABSENT, Cause, find_evidence
from tenterhook.rig.step.step_targets import Reached
from tenterhook.transfers import send_to_host

#: number of elements of which the parts of a model are multiples, so that their words are aligned
_ALIGNED = 8


#: what to do about tensors that differ since the first step
_OWN = (
    "broadcast the parameters, and reduce the gradients from the first step on; leave out what each rank has for "
    'itself, such as on=("**", "!experts.**")'
)


class Piece(NamedTuple):
    """A part of a tensor: the place of the tensor in its hook, and the elements."""

    at: int
    start: int
    #: None in the last part of a tensor, which may grow
    end: int | None


class Digests(NamedTuple):
    """The digests of one step."""

    #: returns the number of each set, which is ABSENT if this rank has none
    numbers: Callable[[], list[int]]
    #: the part of the model that they cover
    part: int
    step: int


@dataclass(eq=False, slots=True)
class _Watched:
    """Describes what a hook compares on this rank."""

    reached: Reached | None = None
    #: for each set that this rank has: for each part of the model, its pieces
    parts: dict[str, list[list[Piece]]] = field(default_factory=dict)
    #: the sets of all ranks, in an order that all ranks have in common
    sets: list[str] = field(default_factory=list)
    #: True if this rank may have other sets than those that the ranks agreed on
    is_new: bool = True
    #: what is compared in the next exchange, and what in the one after it
    due: Digests | None = None
    later: Digests | None = None
    #: what the last exchange compared
    exchanged: Digests | None = None
    #: how often this hook compared
    count: int = 0
    #: for each part, the last step in which it was equal
    compared: dict[int, int] = field(default_factory=dict)


class ReplicaCheck:
    """Compares the replicas of one optimizer's parameters, for all hooks that run the action `replicas`.

    The ranks agree once which sets of replicas exist. In each step, every rank contributes one number for each set. If
    the largest and the smallest number of a set differ, all ranks notice it, and look for the tensor together.

    Args:
        installer: The hooks of the rig.
        report: Receives a difference.
    """

    def __init__(self, installer: Installer, report: Callable[[list[Imbalance]], None]) -> None:
        self._installer = installer
        self._report = report
        self._watched: dict[AttachedHook, _Watched] = {}
        #: True if digests are due in this step that the ranks have not exchanged
        self.is_due = False

    def _of_rig(self) -> dict[AttachedHook, _Watched]:
        """Return what each hook compares, in the order of the plan."""
        hooks = [hook for hook in self._installer.hooks.values() if hook.definition.across_ranks == "equal"]
        self._watched = {hook: self._watched.get(hook) or _Watched() for hook in hooks}
        return self._watched

    def forget(self) -> None:
        """Agree again on what is compared. Call this on all ranks together."""
        for one in self._watched.values():
            one.is_new = True

    def mute(self) -> None:
        """Compare nothing any more, until the program unmutes the hooks."""
        self.is_due = False
        for hook, one in self._watched.items():
            one.due = one.later = None
            hook.mute()
            self._installer.environment.outdated.add(hook)

    def give_up(self, error: RanksError) -> None:
        """Report that the ranks could not compare, and compare nothing any more."""
        self.mute()
        for hook in self._watched:
            cause, remedy = (
                f"they are not compared any more: {error.fact}",
                error.remedy or "look for the first error of another rank",
            )
            self._report([Imbalance("TH709", cause, remedy, hook.hook.id, hook.hook.at)])

    @property
    def is_new(self) -> bool:
        """Return True if the ranks have to agree on what is compared."""
        return any(one.is_new for one in self._watched.values())

    @property
    def raises(self) -> bool:
        """Return True if a difference raises an error."""
        return any(hook.resolved.params["on_difference"] == "raise" for hook in self._watched)

    # -- before the exchange -----------------------------------------------------------------------------------------

    def measure(self, hook: AttachedHook, reached: Reached) -> None:
        """Compute the digests of the part of the model that is compared in this step."""
        watched = self._watched.setdefault(hook, _Watched())
        in_phase = hook.in_phase()
        for site in reached.sites:
            if in_phase:
                site.count(hook.clock)
            else:
                site.skip(out_of_phase(hook))
        if not in_phase or self._installer.environment.group.is_alone:
            return
        if watched.reached is not reached:
            watched.reached, watched.is_new = reached, True
        self.is_due |= watched.is_new or bool(watched.sets)
        watched.count += 1
        if not watched.is_new:
            self._compute(hook, watched)

    def _read(self, hook: AttachedHook, reached: Reached | None) -> dict[str, Tensors]:
        """Find the sets of this rank."""
        if reached is None:
            return {}
        named = [(site.slot, tensor) for site, tensor in zip(reached.sites, reached.parameters, strict=True)]
        separate = frozenset(site.slot for site in reached.sites if site.name in hook.resolved.parts)
        size, uneven = self._installer.environment.group.size, bool(hook.resolved.owners)
        return replica_sets(named, parts=separate, ranks=size, uneven=uneven)

    @torch.no_grad()
    def _compute(self, hook: AttachedHook, watched: _Watched) -> None:
        assert watched.reached is not None
        part, device = watched.count % _every(hook), watched.reached.device
        digests = {
            at: digest
            for at, key in enumerate(watched.sets)
            if key in watched.parts
            and (digest := _digest_of(watched.count, watched.reached, watched.parts[key][part])) is not None
        }
        sent = send_to_host(torch.stack([*digests.values()])) if digests else None
        new = Digests(partial(_numbers, len(watched.sets), list(digests), sent), part, hook.clock.step)
        if _arrives_later(device) and not self.raises:
            watched.due, watched.later = watched.later, new
        else:
            watched.due = new

    def settle(self) -> None:
        """Agree with the other ranks which sets of replicas exist, and compute their digests.

        Every rank must call this method at the same time.
        """
        for hook, one in self._of_rig().items():
            if one.is_new:
                here = self._read(hook, one.reached)
                texts = ranks.distinct_texts(self._installer.environment.group, json.dumps(here, sort_keys=True))
                given: list[dict[str, Tensors]] = [json.loads(text) for text in texts.values()]
                one.sets = sorted({key for some in given for key in some})
                found = {key: common_tensors(some[key] for some in given if key in some) for key in one.sets}
                one.parts = {key: _divided(one.reached, found[key][0], _every(hook)) for key in here}
                self._report_uneven(hook, [slot for _, slots in found.values() for slot in slots])
                one.is_new, one.due, one.later = False, None, None
                one.compared.clear()
                self._report_own_tensors(hook)
                if one.reached is not None and hook.active:
                    self._compute(hook, one)

    def _report_uneven(self, hook: AttachedHook, slots: Sequence[int]) -> None:
        """Report tensors that are not the same kind of tensor on all ranks."""
        if slots and hook.active:
            cause = (
                "it is not compared, because it has another shape or dtype on some ranks, or is not in their optimizer "
                f"({len(slots)} of {len(hook.names)} parameters)"
            )
            remedy, target = "build the same model and the same optimizer on every rank", hook.names[slots[0]]
            self._report([Imbalance("TH709", cause, remedy, hook.hook.id, hook.hook.at, target=target)])

    def _report_own_tensors(self, hook: AttachedHook) -> None:
        """Report tensors that differ since the first comparison, so that each rank is taken to have its own."""
        own = [site.name for site in hook.sites if site.name in hook.resolved.parts]
        if own and hook.active:
            cause = (
                "it is not compared, because it or its gradient has differed since the first step "
                f"({len(own)} of {len(hook.names)} parameters)"
            )
            self._report([Imbalance("TH709", cause, _OWN, hook.hook.id, hook.hook.at, target=own[0])])

    def numbers(self) -> list[int]:
        """Return what this rank contributes to the exchange. All ranks return equally many numbers."""
        watched = self._of_rig().values()
        given = [int(self.is_new)] if watched else []
        self.is_due &= self.is_new
        for one in watched:
            for number in one.due.numbers() if one.due is not None else [ABSENT] * len(one.sets):
                given += [number, ABSENT if number == ABSENT else -number]
            one.exchanged, one.due = one.due, None
        return given

    # -- after the exchange ------------------------------------------------------------------------------------------

    def compare(self, highest: Sequence[int]) -> None:
        """Look for a difference in the maxima of the numbers of all ranks."""
        numbers = iter(highest)
        if next(numbers, 0):  # on at least one rank, the model has changed
            self.forget()
            self.is_due = True
        for hook, one in self._watched.items():
            pairs = [(key, next(numbers), -next(numbers)) for key in one.sets]
            differing = next((key for key, high, low in pairs if ABSENT != high != low), None)
            if differing is not None:
                self._explain(hook, one, differing)
            elif one.exchanged is not None:
                one.compared[one.exchanged.part] = one.exchanged.step

    @torch.no_grad()
    def _explain(self, hook: AttachedHook, watched: _Watched, key: str) -> None:
        """Find the tensor that differs, and report it. Every rank calls this method."""
        tensors: dict[tuple[int, int], Tensor] = {}
        for at in {piece.at for part in watched.parts.get(key, ()) for piece in part}:
            assert watched.reached is not None
            parameter, slot = watched.reached.parameters[at], watched.reached.sites[at].slot
            for of, tensor in enumerate((_bits_of(parameter), _bits_of(parameter.grad))):
                if tensor is not None:
                    tensors[slot, of] = tensor
        steps = _steps_counted(self._installer.environment.model.optimizers().values())
        group, compared = self._installer.environment.group, watched.compared
        evidence = find_evidence(group, hook.names, tensors, steps=steps, is_first=not compared)
        self.mute()  # the replicas will differ in all further steps, too
        step, id, point = hook.clock.step, hook.hook.id, hook.hook.at
        if evidence is None:  # the numbers of an accelerator are those of the step before
            when = watched.exchanged.step if watched.exchanged is not None else step
            cause = f"a gradient differed between the ranks in step {when}, but the parameters are still equal"
            self._report([Imbalance("TH709", cause, Cause.UNKNOWN.value, id, point)])
            return
        whole = len(compared) == _every(hook)
        cause = evidence.sentence(step, min(compared.values()) if whole else None)
        target = evidence.target
        if hook.resolved.params["on_difference"] == "raise":
            raise RanksError(cause, hook=id, target=target, point=point, remedy=evidence.remedy)
        self._report([Imbalance("TH709", cause, evidence.remedy, id, point, target=target)])


def _arrives_later(device: torch.device) -> bool:
    """Return True if reading a number of this device waits for it. Then numbers are compared one step later."""
    return device.type != "cpu"


def _numbers(count: int, places: Sequence[int], sent: Callable[[], Tensor] | None) -> list[int]:
    """Return digests that were sent to the host, at their places among `count` sets."""
    numbers = [ABSENT] * count
    for at, number in zip(places, sent().tolist() if sent is not None else ()):
        numbers[at] = number
    return numbers


def _steps_counted(optimizers: Iterable[Optimizer]) -> int:
    """Return the largest number of steps that the state of the optimizers counts, or 0."""
    states = [state for one in optimizers for state in one.state.values() if isinstance(state, dict)]
    return max((int(state["step"]) for state in states if "step" in state), default=0)


def _every(hook: AttachedHook) -> int:
    return int(hook.resolved.params["every"])


def _digest_of(seed: int, reached: Reached, pieces: Sequence[Piece]) -> Tensor | None:
    """Return one digest of some pieces of the parameters and gradients, or None if there are none."""
    makers: dict[torch.device, ReplicaDigest] = {}
    found: list[Tensor | None] = []
    for piece in pieces:
        parameter = reached.parameters[piece.at]
        for tensor in (_bits_of(parameter), _bits_of(parameter.grad)):
            if tensor is not None and tensor.device not in makers:
                makers[tensor.device] = ReplicaDigest(seed, tensor.device)
            found.append(makers[tensor.device].of(tensor[piece.start : piece.end]) if tensor is not None else None)
    device, maker = next(iter(makers.items()), (None, None))
    if maker is None:
        return None
    one = torch.ones((), dtype=torch.int64, device=device)
    return maker.total([one if digest is None else digest.to(device, non_blocking=True) for digest in found])


def _bits_of(tensor: Tensor | None) -> Tensor | None:
    """Return this rank's elements of a tensor in one dimension, or None if they cannot be compared."""
    if tensor is None or tensor.layout is not torch.strided or tensor.is_meta:
        return None
    return flat(local(tensor.detach()))


def _divided(reached: Reached | None, slots: Sequence[int], count: int) -> list[list[Piece]]:
    """Divide the tensors with these slots into parts."""
    at = {site.slot: place for place, site in enumerate(reached.sites)} if reached is not None else {}
    tensors = reached.parameters if reached is not None else []
    return divide([(at[slot], local(tensors[at[slot]]).numel()) for slot in slots], count)


def divide(sizes: Sequence[tuple[int, int]], count: int) -> list[list[Piece]]:
    """Divide tensors, given by place and number of elements, into parts with about equally many elements."""
    total = sum(size for _, size in sizes)
    each = max(-(-total // count), 1)
    parts: list[list[Piece]] = [[] for _ in range(count)]
    passed = 0
    for at, size in sizes:
        start: int | None = 0
        while start is not None:
            part = min(passed // each, count - 1)
            end = start + max(-(-(each * (part + 1) - passed) // _ALIGNED) * _ALIGNED, _ALIGNED)
            is_last = end >= size or part == count - 1
            parts[part].append(Piece(at, start, None if is_last else end))
            passed += (size if is_last else end) - start
            start = None if is_last else end
    return parts
