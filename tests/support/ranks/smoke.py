"""Run one plan with DDP or FSDP2 under torchrun, and compare it with the whole batch on one process."""

from __future__ import annotations

import copy
import sys

import torch
import torch.distributed as dist
from torch import nn

import tenterhook as th
from tests.support.ranks.launch import leave

MAX = 0.05


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def plan() -> th.Plan:
    return th.Plan([
        th.Hook("before", on="**", at="grad_final", do=th.stats()),
        th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(MAX, over="hook")),
        th.Hook("each", on="0.*", at="grad_final", do=th.clip_norm(MAX / 4)),
        th.Hook("scale", on="2.weight", at="grad_final", do=th.scale(0.5)),
        th.Hook("after", on="**", at="grad_final", do=th.stats()),
    ])  # fmt: skip


def full(p: torch.Tensor) -> torch.Tensor:
    return p.full_tensor() if hasattr(p, "full_tensor") else p


def wrap(bare: nn.Module, kind: str) -> nn.Module:
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(bare)
    from torch.distributed.fsdp import fully_shard

    for layer in (bare[0], bare[2]):
        fully_shard(layer)
    return fully_shard(bare)


def by_hand_step(wrapped: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Do by hand what the plan does, and step."""
    torch.nn.utils.clip_grad_norm_(wrapped.parameters(), MAX)
    first, first_bias, last, _ = wrapped.parameters()
    for p in (first, first_bias):
        torch.nn.utils.clip_grad_norm_(p, MAX / 4)
    last.grad = last.grad * 0.5
    optimizer.step()


def main(kind: str) -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    alone = model()
    wrapped, twin = (wrap(copy.deepcopy(alone), kind) for _ in range(2))
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1, momentum=0.9)
    rig = th.attach(wrapped, plan(), optimizer=optimizer)
    assert list(rig.ledger["before"]) == ["0.weight", "0.bias", "2.weight", "2.bias"], list(rig.ledger["before"])

    on_twin = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
    by_hand = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
    for step in range(3):
        x = torch.randn(4 * world, 4, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        wrapped(x[4 * rank : 4 * rank + 4]).square().mean().backward()
        optimizer.step()

        on_twin.zero_grad()
        twin(x[4 * rank : 4 * rank + 4]).square().mean().backward()
        by_hand_step(twin, on_twin)
        for mine, theirs in zip(twin.parameters(), wrapped.parameters(), strict=True):
            if kind == "ddp":
                assert torch.equal(mine, theirs), "bit for bit"
            else:  # PyTorch sums the norms of the shards in single precision, tenterhook in double
                torch.testing.assert_close(full(theirs.detach()), full(mine.detach()), rtol=1e-6, atol=1e-8)

        by_hand.zero_grad()
        alone(x).square().mean().backward()
        norms = {n: p.grad.norm().item() for n, p in alone.named_parameters()}
        by_hand_step(alone, by_hand)
        for (name, mine), theirs in zip(alone.named_parameters(), wrapped.parameters(), strict=True):
            torch.testing.assert_close(full(theirs.detach()), mine.detach(), rtol=1e-5, atol=1e-7)
            assert abs(rig.values("before")[name]["norm"] - norms[name]) < 1e-5 * norms[name]
    assert rig.step_count == 3 and rig.ledger["clip"].changed == 12

    if kind == "fsdp2":
        try:
            th.attach(wrapped, [th.Hook("own", on="**", at="grad_final", do=lambda g: g)], optimizer=optimizer)
        except th.RefusedError as refusal:
            assert "is neither elementwise nor two-phase, but the parameters are sharded over ranks" in str(refusal)
        else:
            raise AssertionError("a user's function was not refused on shards")
    rig.detach()
    print(f"rank {rank}: {kind} exact")
    leave()


if __name__ == "__main__":
    main(sys.argv[1])
