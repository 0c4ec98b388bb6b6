"""Test how the partial results of the ranks are merged, with a group that doubles sums and records what it reduces."""

from __future__ import annotations

import torch
from torch import Tensor

from tenterhook import ranks

CPU, META = torch.device("cpu"), torch.device("meta")


class Twin(ranks.RankGroup):
    """A group of two ranks with equal numbers. Each device reduces its own tensors."""

    def __init__(self) -> None:
        super().__init__([0])
        self.members = (0, 1)
        #: the device and the size of each collective
        self.collectives: list[tuple[str, torch.device, int]] = []

    @staticmethod
    def device_of_reduction(device: torch.device) -> torch.device:
        return device

    def sum(self, tensor: Tensor) -> Tensor:
        self.collectives.append(("sum", tensor.device, tensor.numel()))
        return tensor * 2

    def max(self, tensor: Tensor) -> Tensor:
        self.collectives.append(("max", tensor.device, tensor.numel()))
        return tensor


def test_sums_maxima_and_norms_of_several_hooks_need_two_collectives() -> None:
    group = Twin()
    first = {"count": torch.tensor([1.0, 2.0]), "max": torch.tensor([3.0, 4.0]), "norm": torch.tensor([3.0, 0.0])}
    second = {"bins": torch.tensor([[1.0, 2.0, 3.0]]), "fired": torch.tensor([1.0])}
    how = [{"count": "sum", "max": "max", "norm": "norm"}, {"bins": "sum", "fired": "max"}]
    one, two = ranks.merge(group, [first, second], how)
    assert one["count"].tolist() == [2.0, 4.0] and one["max"].tolist() == [3.0, 4.0]
    assert torch.equal(one["norm"], torch.tensor([18.0, 0.0], dtype=torch.float64).sqrt())
    assert two["bins"].tolist() == [[2.0, 4.0, 6.0]] and two["fired"].tolist() == [1.0]
    assert group.collectives == [("sum", CPU, 7), ("max", CPU, 3)]


def test_tensors_on_the_cpu_do_not_wait_for_a_device_that_reduces_its_own() -> None:
    group = Twin()
    parts = {"fired": torch.tensor([0.0, 1.0]), "max": torch.zeros(3, device="meta")}
    (found,) = ranks.merge(group, [parts], [{"fired": "max", "max": "max"}])
    assert found["fired"].tolist() == [0.0, 1.0]
    assert found["max"].device == META
    assert group.collectives == [("max", CPU, 2), ("max", META, 3)]


def test_one_rank_merges_nothing() -> None:
    given = {"sum": torch.tensor([1.0])}
    (found,) = ranks.merge(ranks.RankGroup([0]), [given], [{"sum": "sum"}])
    assert found == given
