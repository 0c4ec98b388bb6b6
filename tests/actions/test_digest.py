"""Compare digests with a slow computation in Python integers, and bits with bits."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import tenterhook as th
from tenterhook.actions.digest import BITS, digest_of

MASK = 2**64 - 1


def signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def slow_digest(x: Tensor) -> int:
    """Compute the digest of one element after the other."""
    total = 0
    for place, byte in enumerate(x.flatten().split(1), start=1):
        raw = bytes(byte.view(torch.uint8).tolist())
        word = int.from_bytes(raw, "little", signed=True)
        word = signed((place * -7046029254386353131 + word) & MASK)
        word ^= word >> 30
        word = signed((word * -4658895280553007687) & MASK)
        word ^= word >> 27
        word = signed((word * -7723592293110705685) & MASK)
        total += word ^ (word >> 31)
    return total % 2**BITS


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int8]
)
def test_the_digest_is_the_slow_one(dtype: torch.dtype) -> None:
    x = (torch.randn(5, 7, generator=torch.Generator().manual_seed(0)) * 50).to(dtype)
    assert int(digest_of(x)) == slow_digest(x)


def test_tensors_larger_than_one_chunk_are_mixed_by_place() -> None:
    x = torch.randn(2**20 + 9, generator=torch.Generator().manual_seed(1))
    y = x.clone()
    y[3], y[2**20 + 3] = x[2**20 + 3], x[3]
    assert digest_of(x) == digest_of(x.clone())
    assert digest_of(x) != digest_of(y)


def test_every_flipped_bit_and_every_exchange_changes_the_digest() -> None:
    chance = random.Random(0)
    x = torch.randn(400, generator=torch.Generator().manual_seed(2))
    seen = {float(digest_of(x))}
    for _ in range(2_000):
        y = x.clone()
        place = chance.randrange(400)
        y.view(torch.int32)[place] ^= signed32(1 << chance.randrange(32))
        assert float(digest_of(y)) != float(digest_of(x))
        seen.add(float(digest_of(y)))
    for _ in range(500):
        one, other = chance.sample(range(400), 2)
        y = x.clone()
        y[one], y[other] = x[other], x[one]
        assert float(digest_of(y)) != float(digest_of(x))


def signed32(value: int) -> int:
    return value - 2**32 if value >= 2**31 else value


def test_views_empty_tensors_and_complex_numbers() -> None:
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(3))
    assert digest_of(x.t()) == digest_of(x.t().contiguous())
    assert digest_of(x.t()) != digest_of(x)
    assert digest_of(torch.empty(0)) == 0
    z = torch.complex(x, x.flip(0))
    assert digest_of(z.conj()) == digest_of(z.conj().resolve_conj())
    assert digest_of(z.conj()) != digest_of(z)


def test_weights_are_digested_before_and_after_the_step() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    plan = [th.Hook(at, on="**", at=at, do=th.weight_digest()) for at in ("grad_final", "update")]
    with th.attach(model, plan, optimizer=optimizer) as rig:
        before = {name: float(digest_of(p)) for name, p in model.named_parameters()}
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        after = {name: float(digest_of(p)) for name, p in model.named_parameters()}
        assert {n: row["digest"] for n, row in rig.values("grad_final").items()} == before
        assert {n: row["digest"] for n, row in rig.values("update").items()} == after
        assert before != after


def test_every_call_and_leaf_has_its_own_digest_and_place(tmp_path: Path) -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x, 2 * x

    model = nn.Sequential(Two())
    hook = th.Hook("d", on=("0", "."), at="output", do=th.digest())
    with th.attach(model, hook, sinks=[th.Store(tmp_path)]) as rig, rig.step():
        for value in (1.0, 3.0):
            model(torch.tensor([value]))
    rows = th.open_run(tmp_path).fetch("select target, call, leaf, value from rows where name = 'digest' order by all")
    wanted = [
        (target, call, leaf, float(digest_of(torch.tensor([value * (leaf + 1)]))))
        for target in (".", "0")
        for call, value in enumerate((1.0, 3.0))
        for leaf in (0, 1)
    ]
    assert rows == wanted
    order = th.open_run(tmp_path).fetch("select target, call, leaf from rows where name = 'order' order by value")
    assert order == [(t, call, leaf) for call in (0, 1) for t in ("0", ".") for leaf in (0, 1)]
