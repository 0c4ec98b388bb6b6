"""Test that the digest of `th.replicas` sees each change, and that the parts of a model cover it."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from torch import Tensor, nn

import tenterhook as th
from tenterhook.actions.replicas import ReplicaDigest, flat, shorten
from tenterhook.rig.step.replica_check import Piece, divide

SIZES = (1, 2, 3, 7, 8, 9, 4095, 8191, 8192, 8193, 20_001)
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float8_e4m3fn, torch.int8, torch.bool, torch.complex64)


def digest(tensor: Tensor, seed: int = 0) -> int:
    return shorten([ReplicaDigest(seed, tensor.device).of(flat(tensor))])[0]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_each_flipped_bit_is_seen(size: int, dtype: torch.dtype):
    tensor = torch.randn(size, generator=torch.Generator().manual_seed(size)).to(dtype)
    data = tensor.view(torch.uint8)
    before, rng = digest(tensor), random.Random(size)
    for place in {0, len(data) - 1, *(rng.randrange(len(data)) for _ in range(20))}:
        bit = 1 if dtype is torch.bool else 1 << rng.randrange(8)
        data[place] ^= bit
        assert digest(tensor) != before, (place, bit)
        data[place] ^= bit
    assert digest(tensor) == before


@pytest.mark.parametrize("size", SIZES[1:])
def test_two_elements_that_changed_places_are_seen(size: int):
    tensor = torch.randn(size, generator=torch.Generator().manual_seed(size))
    before, rng = digest(tensor), random.Random(size)
    for one, other in {tuple(rng.sample(range(size), 2)) for _ in range(50)}:
        swapped = tensor.clone()
        swapped[one], swapped[other] = tensor[other], tensor[one]
        assert digest(swapped) != before


def test_swaps_of_powers_of_two_are_seen_by_one_of_a_few_seeds():
    tensor = 2.0 ** torch.arange(64).remainder(16).float()
    for one, other in itertools.combinations(range(64), 2):
        swapped = tensor.clone()
        swapped[one], swapped[other] = tensor[other], tensor[one]
        if not torch.equal(swapped, tensor):
            assert any(digest(swapped, seed) != digest(tensor, seed) for seed in range(6)), (one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64], ids=str)
def test_signs_that_change_together_are_seen(dtype: torch.dtype):
    tensor = torch.randn(20_000, generator=torch.Generator().manual_seed(0)).to(dtype)
    before, rng = digest(tensor), random.Random(0)
    for count in (2, 4, 1000, 20_000):
        for _ in range(5):
            changed = tensor.clone()
            places = rng.sample(range(len(tensor)), count)
            changed[places] = -changed[places]
            assert digest(changed) != before, count
    assert digest(-tensor) != before
    imaginary = tensor.conj().resolve_conj()
    assert digest(imaginary) == before or dtype.is_complex


def test_the_order_in_memory_does_not_matter():
    tensor = torch.randn(4, 6, 3, 3)
    assert digest(tensor.to(memory_format=torch.channels_last)) == digest(tensor)


def test_a_view_has_the_digest_of_its_copy():
    whole = torch.randn(40, 3)
    for view in (whole[1:], whole.t(), whole[1:, :2], whole[::2], whole[:, 1], whole[0, :1].expand(6)):
        assert digest(view) == digest(view.contiguous())


@pytest.mark.parametrize("count", [1, 2, 7, 64, 500])
def test_the_parts_of_a_model_cover_each_element_once(count: int):
    sizes = [1, 0, 17, 4096, 3, 100_000, 8, 8, 5]
    parts = divide(list(enumerate(sizes)), count)
    assert len(parts) == count
    covered: dict[int, list[tuple[int, int]]] = {}
    largest = [0] * count
    for number, part in enumerate(parts):
        for piece in part:
            assert isinstance(piece, Piece) and piece.start % 8 == 0
            end = sizes[piece.at] if piece.end is None else piece.end
            covered.setdefault(piece.at, []).append((piece.start, end))
            largest[number] += end - piece.start
    assert set(covered) == set(range(len(sizes)))
    for at, ranges in covered.items():
        ends = [0, *(end for _, end in sorted(ranges))]
        assert [start for start, _ in sorted(ranges)] == ends[:-1] and ends[-1] == sizes[at]
    assert max(largest) <= sum(sizes) / count + 16


def test_one_process_has_nothing_to_compare_and_counts_its_firings():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rig = th.attach(model, th.Hook("r", on="**", at="grad_final", do=th.replicas()), optimizer=optimizer)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert rig.ledger["r"].fired == 2
    assert not rig.imbalances


@pytest.mark.parametrize("given", [{"every": 0}, {"every": 5000}, {"on_difference": "stop"}])
def test_wrong_parameters_are_refused(given: dict[str, object]):
    with pytest.raises(th.ActionError):
        th.replicas(**given)
