"""Let the ranks agree before they exchange data in a step, and before they raise an error."""

from __future__ import annotations

import warnings
from itertools import islice

from torch import nn

from tenterhook import ranks
from tenterhook import torch_internals as private
from tenterhook.errors import RanksError, RefusedError
from tenterhook.plan import Plan
from tenterhook.record import Recorder
from tenterhook.resolve.agreement import digest_of
from tenterhook.resolve.sharding import GLOBAL_POINTS
from tenterhook.rig.installer import Installer, Schedule
from tenterhook.rig.runtime.attached_hook import AttachedHook
from tenterhook.rig.step.layout import Layout, LayoutStatus
from tenterhook.rig.step.replica_check import ReplicaCheck
from tenterhook.rig.step.skew import Skew


class StepAgreement:
    """An object that lets the ranks of one rig agree.

    The first exchange of a step begins with a header. If a rank is at another step, has other hooks, has detached or is
    missing, every rank raises an error before unrelated numbers are mixed.
    """

    def __init__(self, plan: Plan, installer: Installer, recorder: Recorder) -> None:
        self._plan = plan
        self._installer = installer
        #: what compares local numbers of the ranks
        self.skew = Skew(installer, recorder)
        #: what compares the replicas of each optimizer's parameters
        self._checks: list[ReplicaCheck] = []
        self._layout = Layout(installer)
        #: the step of the last exchange, and the number of exchanges in it
        self._step, self._exchanges = -1, 0
        #: the schedule whose digest is known, and the digest
        self._known: tuple[Schedule, int] | None = None

    def new_check(self) -> ReplicaCheck:
        """Return an object that compares the replicas of one optimizer's parameters in the exchanges of each step."""
        self._checks.append(ReplicaCheck(self._installer, self._installer.environment.found.add))
        return self._checks[-1]

    def set_plan(self, plan: Plan) -> None:
        self._plan, self._known = plan, None
        self._layout.forget()
        self._forget_replicas()

    def begin(self) -> None:
        """Compare the ranks before the first exchange of a step. If the layout of the model changed, decide it again.

        Call this before data is exchanged. The next calls in the same step do nothing.
        """
        if self._step != self._installer.environment.clock.step and not self._installer.environment.group.is_alone:
            self._exchange()

    def agree(self, *points: str) -> None:
        """Raise an error on every rank if an error occurred on any rank.

        If `points` are given, consider only the hooks at these points. Otherwise, call this method before the optimizer
        changes any weights.
        """
        hooks = [hook.resolved for hook in self._installer.schedule.active if not points or hook.hook.at in points]
        if any(resolved.on_error == "raise" for resolved in hooks):
            self._exchange()
        if any(check.is_due for check in self._checks):
            self._compare_replicas()

    def exchange_skew(self) -> None:
        """Exchange the numbers of the last step if no exchange of this step has contained them."""
        if not self.skew.is_due:
            return
        try:
            if _joins(self._installer.environment.model.root()):
                raise RanksError("the ranks may make different numbers of steps inside join()")
            self.begin()
        except RanksError as error:
            self.skew.mute()
            warnings.warn(f"tenterhook: skew is not recorded any more: {error.fact}", RuntimeWarning, stacklevel=2)

    def _compare_replicas(self) -> None:
        """Compare the replicas if no exchange of this step has done it yet."""
        if _joins(self._installer.environment.model.root()):
            for check in self._checks:
                check.mute()
            warnings.warn(
                "tenterhook: replicas are not compared any more, because the ranks may make different numbers of steps "
                "inside join()",
                RuntimeWarning,
                stacklevel=2,
            )
            return
        try:
            self._exchange()
            for check in (due := [check for check in self._checks if check.is_due]):
                check.settle()
            if due:
                self._exchange()
        except RanksError as error:
            if any(check.raises for check in self._checks):
                raise
            for check in self._checks:
                check.give_up(error)

    def follow_layout(self, resolved: int) -> None:
        """Decide the layout on all ranks together if it is not decided yet, or if it has changed on this rank.

        Args:
            resolved: How often all targets have been looked up again.
        """
        if not self._layout.follow(resolved) or _joins(self._installer.environment.model.root()):
            return
        try:
            self.begin()
        except RanksError as error:
            hooks = self._installer.schedule.active
            if any(_needs_ranks(hook) for hook in hooks) or any(check.raises for check in self._checks):
                raise
            self._layout.give_up()
            for check in self._checks:
                check.give_up(error)
            if any(hook.definition.across_ranks is None for hook in hooks):
                warnings.warn(
                    "tenterhook: the ranks could not compare their tensors, so each rank measures what it has: "
                    f"{error.fact}",
                    RuntimeWarning,
                    stacklevel=2,
                )

    def _exchange(self) -> None:
        environment = self._installer.environment
        step = environment.clock.step
        if step != self._step:
            self._step, self._exchanges = step, 0
        if _joins(environment.model.root()):
            raise RefusedError(
                "inside join(), a rank without input makes no step, so the ranks cannot agree in each step",
                remedy="use only observers inside join(), or give every rank the same number of batches",
            )
        header = ranks.Header(step, self._exchanges, self._digest())
        self._exchanges += 1
        status = self._layout.status
        changes = status is LayoutStatus.CHANGED
        due = [check for check in self._checks if check.is_due]
        skew, given = self.skew.numbers(), [check.numbers() for check in self._checks]
        numbers = [number for some in (skew, *given) for number in some]
        agreed = ranks.agree(environment.group, header, environment.errors.take(), flag=changes, numbers=numbers)
        self.skew.compare(agreed.highest[: len(skew)])
        if agreed.flag or status is not LayoutStatus.DECIDED:
            self._layout.settle(changed=agreed.flag)
            self._forget_replicas()
            for check in due:
                check.is_due = True
            return
        highest = iter(agreed.highest[len(skew) :])
        for check, some in zip(self._checks, given, strict=True):
            check.compare(list(islice(highest, len(some))))

    def _forget_replicas(self) -> None:
        for check in self._checks:
            check.forget()

    def _digest(self) -> int:
        """Return a digest of the plan and of the active hooks that exchange data or raise errors."""
        schedule = self._installer.schedule
        if self._known is None or self._known[0] is not schedule:
            hooks = [one.hook for one in schedule.active if one.resolved.merges or one.resolved.on_error == "raise"]
            sizes = [len(one.sites) for one in schedule.active if one.hook.at in GLOBAL_POINTS]
            self._known = schedule, digest_of([*self._plan, *hooks, sizes])
        return self._known[1]


def _needs_ranks(hook: AttachedHook) -> bool:
    """Return True if a hook needs the numbers of the other ranks."""
    return hook.definition.modifies or hook.resolved.merges or hook.resolved.on_error == "raise"


def _joins(model: nn.Module | None) -> bool:
    """Return True inside `join()`, where the ranks may make different numbers of steps."""
    return isinstance(model, nn.parallel.DistributedDataParallel) and private.uses_join(model)
