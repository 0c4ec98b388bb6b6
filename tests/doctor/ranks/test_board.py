"""Test how ranks exchange their results through a store at the end of an exam, and that no rank waits forever."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import torch.distributed as dist

from tenterhook.ranks import Board


def boards(world: int) -> list[Board]:
    store, made = dist.HashStore(), []
    for rank in range(world):
        board = Board.__new__(Board)
        board._store, board.rank, board.world = store, rank, world
        made.append(board)
    return made


def answers(texts: list[str], patience: float = 5.0) -> list[tuple[int, str] | None]:
    with ThreadPoolExecutor(len(texts)) as pool:
        return list(pool.map(lambda b, t: b.other("exam", t, patience), boards(len(texts)), texts))


def test_ranks_that_are_alike():
    assert answers(["a", "a", "a"]) == [None, None, None]


def test_one_differs_and_rank_0_is_told_too():
    assert answers(["a", "a", "b"]) == [(2, "b"), None, (0, "a")]


def test_a_rank_that_does_not_come_is_not_waited_for():
    first, second = boards(2)
    begun = time.monotonic()
    assert second.other("exam", "b", 0.2) is None
    assert first.other("exam", "a", 0.2) is None
    assert time.monotonic() - begun < 3


def test_a_store_that_is_gone():
    class Gone:
        def set(self, key: str, value: str) -> None:
            raise RuntimeError("Connection reset by peer")

    (board,) = boards(1)
    board._store = Gone()
    assert board.other("exam", "a", 0.2) is None
