"""Test how ranks are counted, with a store in memory that counts its operations."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta

import pytest

from tenterhook.errors import RanksError
from tenterhook.ranks import group
from tenterhook.ranks.arrivals import BLOCK, Arrivals


class CountingStore:
    """A store in memory. It counts the operations of the rank that uses it."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.counters: Counter[str] = Counter()
        self.operations = 0

    def set(self, key: str, value: bytes) -> None:
        self.operations += 1
        self.kept[key] = value

    def add(self, key: str, number: int) -> int:
        self.operations += 1
        self.counters[key] += number
        return self.counters[key]

    def check(self, keys: list[str]) -> bool:
        self.operations += 1
        return all(key in self.kept for key in keys)

    def delete_key(self, key: str) -> bool:
        self.operations += 1
        return self.kept.pop(key, None) is not None

    def wait(self, keys: list[str], timeout: timedelta) -> None:
        self.operations += 1
        if not all(key in self.kept for key in keys):
            raise RuntimeError("wait timeout")


SIZES = (1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 1000, BLOCK * BLOCK, BLOCK * BLOCK + 1, 10_000)


@pytest.mark.parametrize("size", SIZES)
def test_all_arrive(size: int):
    store = CountingStore()
    arrivals = Arrivals(store, "here", size)
    order = random.Random(size).sample(range(size), size)
    most = 0
    for number, position in enumerate(order):
        assert arrivals.done not in store.kept, f"only {number} of {size} have arrived"
        before = store.operations
        arrivals.arrive(position)
        most = max(most, store.operations - before)
    assert arrivals.done in store.kept
    assert most <= 7, "the operations of a rank grow with the logarithm"
    assert arrivals.missing(8)[0] == []


@pytest.mark.parametrize("size", [size for size in SIZES if size > 2])
def test_missing_ranks_are_named(size: int):
    chosen = random.Random(size)
    for count in (1, 2, 9):
        absent = sorted(chosen.sample(range(size), min(count, size - 1)))
        store = CountingStore()
        arrivals = Arrivals(store, "here", size)
        for position in set(range(size)) - set(absent):
            arrivals.arrive(position)
        before = store.operations
        named, number = arrivals.missing(8)
        assert named == absent[:8]
        assert number == len(absent)
        assert store.operations - before <= 8 * BLOCK * 3
        assert arrivals.done not in store.kept


def test_an_arrival_can_be_taken_back():
    """Check that the ranks of a meeting that failed can come again, in another order."""
    for size in (2, BLOCK, 3 * BLOCK + 1):
        store = CountingStore()
        arrivals = Arrivals(store, "here", size)
        chosen = random.Random(size)
        for _ in range(3):
            some = chosen.sample(range(size), size - 1)
            for position in some:
                arrivals.arrive(position)
            for position in chosen.sample(some, len(some)):
                arrivals.withdraw(position)
        assert arrivals.done not in store.kept
        for position in range(size):
            arrivals.arrive(position)
        assert arrivals.done in store.kept


WORLD = 10_000


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> CountingStore:
    """Simulate a world of 10,000 ranks, in which this process is rank 4321."""
    store = CountingStore()
    monkeypatch.setattr(group, "world_size", lambda: WORLD)
    monkeypatch.setattr(group, "rank", lambda: 4321)
    monkeypatch.setattr(group, "store", lambda: store)
    monkeypatch.setattr(group, "_meetings", Counter())
    return store


def test_a_meeting_of_a_large_world(world: CountingStore):
    """Check that a meeting takes each rank a number of requests that does not grow with the world."""
    ranks = group.RankGroup()
    for meeting in range(3):
        others = Arrivals(world, f"{ranks._place}/{meeting}", WORLD)
        for position in range(WORLD):
            if position != ranks.position:
                others.arrive(position)
        before = world.operations
        ranks.meet("attach")
        assert world.operations - before <= 8


def test_a_failed_meeting_of_a_large_world(world: CountingStore):
    """Check that each rank names the missing ranks with few requests, and that the next meeting works."""
    ranks = group.RankGroup(patience=1.0)
    absent = (7, 4322, 9999)
    others = Arrivals(world, f"{ranks._place}/0", WORLD)
    for position in set(range(WORLD)) - {*absent, ranks.position}:
        others.arrive(position)
    before = world.operations
    with pytest.raises(RanksError) as caught:
        ranks.meet("attach")
    assert caught.value.fact == "3 of 10000 ranks did not call attach within 1 s: 7, 4322, 9999"
    assert world.operations - before <= 4 * 3 * BLOCK, "a check of every rank by every rank would be 10,000"
    for position in absent:
        others.arrive(position)
    ranks.meet("attach")


class LostStore(CountingStore):
    """A store whose process has ended."""

    def set(self, key: str, value: bytes) -> None:
        raise RuntimeError("Broken pipe")


def test_the_process_with_the_store_has_ended(monkeypatch: pytest.MonkeyPatch):
    """Check that the errors of the store are not raised as they are, at a meeting and after a failed collective."""
    monkeypatch.setattr(group, "world_size", lambda: 2)
    monkeypatch.setattr(group, "rank", lambda: 1)
    monkeypatch.setattr(group, "store", LostStore)
    ranks = group.RankGroup(patience=1.0)
    wanted = "the ranks could not communicate, and the store of the process group does not answer"
    with pytest.raises(RanksError, match=f"{wanted}: Broken pipe"):
        ranks.meet("attach")
    with pytest.raises(RanksError, match=f"{wanted}: Connection closed by peer"):
        ranks._fail(RuntimeError("Connection closed by peer"))
    with pytest.raises(RanksError, match=wanted):
        ranks.max_of([1])
