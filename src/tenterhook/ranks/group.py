"""The ranks that hold a model, and the sums and maxima over them."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, NoReturn

import torch
from torch import Tensor

from tenterhook import torch_internals as private
from tenterhook.errors import RanksError
from tenterhook.ranks.arrivals import Arrivals
from tenterhook.ranks.world import rank, store, world_size

#: seconds to wait for the other ranks, unless the program says otherwise
PATIENCE = 60.0
#: seconds to wait, after a failure, for other ranks that report the same failure
GRACE = 1.0
#: maximum number of missing ranks that an error lists
NAMED = 8

#: number of meetings of each set of ranks so far, which makes the keys in the store unique
_meetings: Counter[str] = Counter()


class RankGroup:
    """The ranks that hold a model.

    The group communicates over connections of its own, because the program may use its process groups at any moment:
    `DDP.join()` and asynchronous checkpoints do. The connections are made by the first collective, after a meeting.
    Every rank must call the same collectives in the same order.

    Args:
        members: The ranks in the group, in ascending order. The default is all ranks.
        patience: The number of seconds to wait for the other ranks.
    """

    def __init__(self, members: Sequence[int] | None = None, *, patience: float | None = None) -> None:
        #: the ranks in the group
        self.members = tuple(range(world_size()) if members is None else members)
        #: the position of this process among the members
        self.position = self.members.index(rank()) if len(self.members) > 1 else 0
        self.patience = PATIENCE if patience is None else patience
        #: why the ranks can no longer communicate, or None if they can
        self._failure: RanksError | None = None
        self._connection: private.Connection | None = None
        self._place = f"tenterhook/{hashlib.sha256(repr(self.members).encode()).hexdigest()[:16]}"
        #: the first part of the keys of this group in the store, set by the first meeting
        self._key = ""
        #: number of keys that ranks have posted data under
        self._posted = 0

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def rank(self) -> int:
        """Return the rank of this process."""
        return self.members[self.position]

    @property
    def first(self) -> int:
        """Return the lowest rank in the group, which records what is equal on all ranks."""
        return self.members[0]

    @property
    def is_alone(self) -> bool:
        """Return True if no other process is in the group, so that nothing is communicated."""
        return self.size == 1

    # -- meetings ----------------------------------------------------------------------------------------------------

    def meet(self, what: str) -> None:
        """Wait until every rank of the group has called this method.

        If a rank does not call it in time, raise a RanksError that lists the missing ranks. `what` is the public call
        that the error names.
        """
        if self.is_alone or private.is_simulated():
            return
        place = f"{self._place}/{_meetings[self._place]}"
        try:
            shared = store()
            arrivals = Arrivals(shared, place, self.size)
            arrivals.arrive(self.position)
            if not self._wait(shared, arrivals.done):
                missing, count = arrivals.missing(NAMED)
                arrivals.withdraw(self.position)
                raise RanksError(
                    f"{count} of {self.size} ranks did not call {what} within {self.patience:g} s: "
                    f"{self._named(missing, count)}",
                    rank=self.rank,
                    remedy=f"call {what} on every rank, not inside `if rank == 0:`; if only some ranks train this "
                    "model, pass their process group or mesh as group=",
                )
        except (RuntimeError, ValueError) as error:
            raise self._without_store(error) from error
        _meetings[self._place] += 1
        if not self._key or self._is_broken(shared):
            self._connect_at(place)

    def _is_broken(self, shared: Any) -> bool:
        """Return True if a collective has failed, and no rank has left. All ranks that have met return the same."""
        with suppress(RuntimeError, ValueError):  # the store is gone
            return bool(shared.check([f"{self._key}/failure"]) and not shared.check([f"{self._key}/left"]))
        return False

    def _connect_at(self, place: str) -> None:
        """Use a new connection, whose keys in the store begin with the place where all ranks have met."""
        if self._connection is not None:
            self._connection.close()
        self._key, self._connection, self._failure, self._posted = place, None, None, 0

    def _wait(self, shared: Any, key: str) -> bool:
        """Wait for a key in the store. Return False if no rank has set it in time."""
        try:
            shared.wait([key], timedelta(seconds=self.patience))
        except RuntimeError:
            return False
        return True

    def post(self, data: bytes) -> None:
        """Store data for the other ranks, which call `fetch`. If the store is gone, they notice it themselves."""
        key = self._next_key()
        with suppress(RuntimeError, ValueError):
            store().set(key, data)

    def fetch(self) -> bytes:
        """Return the data that another rank posts."""
        key = self._next_key()
        try:
            shared = store()
            shared.wait([key], timedelta(seconds=self.patience))
            data: bytes = shared.get(key)
        except (RuntimeError, ValueError) as error:
            raise self._without_store(error) from error
        return data

    def _next_key(self) -> str:
        """Return a key in the store that is the same on all ranks and was not used before."""
        self._posted += 1
        return f"{self._key}/posted/{self._posted}"

    # -- collectives -------------------------------------------------------------------------------------------------

    def sum(self, tensor: Tensor) -> Tensor:
        """Return the sum of a tensor over the ranks. The tensor may be overwritten."""
        return tensor if self.is_alone else self._reduce(tensor, private.ReduceKind.SUM)

    def max(self, tensor: Tensor) -> Tensor:
        """Return the maximum of each element over the ranks. The tensor may be overwritten."""
        return tensor if self.is_alone else self._reduce(tensor, private.ReduceKind.MAX)

    def max_of(self, numbers: Sequence[int]) -> list[int]:
        """Return the maximum of each number over the ranks. This does not wait for the device."""
        if self.is_alone:
            return list(numbers)
        return self._reduce(torch.tensor(numbers, dtype=torch.int64, device="cpu"), private.ReduceKind.MAX).tolist()

    @staticmethod
    def device_of_reduction(device: torch.device) -> torch.device:
        """Return the device on which tensors of a device are reduced. Others wait until the device has copied them."""
        return private.device_of_reduction(device)

    def _reduce(self, tensor: Tensor, kind: private.ReduceKind) -> Tensor:
        if self._failure is not None:
            raise self._failure
        try:
            if self._connection is None:
                self._connection = private.Connection(
                    store(), f"{self._key}/connect", self.position, self.size, self.patience
                )
            return self._connection.reduce(tensor, kind)
        except RuntimeError as error:
            self._fail(error)

    # -- the end -----------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Leave the group. The other ranks notice it in their next collective."""
        if self.is_alone or self._connection is None or self._failure is not None:
            return
        with suppress(RuntimeError, ValueError):  # the process group may be destroyed
            store().set(f"{self._key}/left", str(self.rank))
        self._close(RanksError("this rank has left the group", rank=self.rank))

    def _close(self, why: RanksError) -> None:
        self._failure = why
        if self._connection is not None:
            self._connection.close()

    def _fail(self, error: RuntimeError) -> NoReturn:
        """Raise an error that names the ranks that did not take part in a collective."""
        try:
            made = self._explained(error)
        except (RuntimeError, ValueError):  # the store is gone
            made = self._without_store(error)
        self._close(made)
        raise made from error

    def _explained(self, error: RuntimeError) -> RanksError:
        shared, here = store(), self.rank
        arrivals = Arrivals(shared, f"{self._key}/failed", self.size)
        arrivals.arrive(self.position)
        end = time.monotonic() + GRACE
        while time.monotonic() < end and not shared.check([arrivals.done]):
            time.sleep(0.05)
        missing, count = arrivals.missing(NAMED)
        if shared.check([f"{self._key}/left"]):
            left = shared.get(f"{self._key}/left").decode()
            made = RanksError(
                f"rank {left} has detached its hooks, but this rank still has them",
                rank=here,
                remedy="call detach on every rank, in the same step",
            )
        elif missing:
            made = RanksError(
                f"{count} of {self.size} ranks did not reach this step within {self.patience:g} s: "
                f"{self._named(missing, count)}",
                rank=here,
                remedy="let every rank make the same number of optimizer steps; if a rank may be slower, pass a larger "
                "patience=",
            )
        else:
            made = RanksError(f"the ranks could not communicate: {_first_line(error)}", rank=here)
        # The first rank that failed knows best why. A rank that is late finds only that the others are gone.
        first = shared.compare_set(f"{self._key}/failure", "", made.fact).decode()
        made.fact = first if not missing else made.fact
        return made

    def _without_store(self, error: Exception) -> RanksError:
        return RanksError(
            "the ranks could not communicate, and the store of the process group does not answer: "
            f"{_first_line(error)}",
            rank=self.rank,
            remedy="look for the first error of another rank: its process may have ended",
        )

    def _named(self, positions: Sequence[int], count: int) -> str:
        named = ", ".join(str(self.members[one]) for one in positions)
        return named + (f" and {count - len(positions)} more" if count > len(positions) else "")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
