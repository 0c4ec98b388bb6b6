"""Check what several ranks record, and that a trip on one rank counts on all ranks.

python -m torch.distributed.run ... -m tests.support.ranks.recording FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import tenterhook as th
from tests.support.ranks.launch import leave

STEPS, BAD = 8, 3


def model(*, spread: bool) -> Any:
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    return fully_shard(made) if spread else nn.parallel.DistributedDataParallel(made)


def train(one: Any, optimizer: Any, *, bad: bool) -> None:
    for step in range(STEPS):
        optimizer.zero_grad()
        x = torch.full((2, 4), float(1 + dist.get_rank() + step))
        if bad and step == BAD and dist.get_rank() == 1:
            x = x * float("nan")
        one(x).nan_to_num().square().mean().backward()
        for parameter in one.parameters():
            parameter.grad.nan_to_num_()
        optimizer.step()


def a_trip_on_one_rank(spread: bool) -> None:
    """Check that hooks with `after_trip` fire on both ranks, although only rank 1 has a NaN in its output."""
    one = model(spread=spread)
    optimizer = torch.optim.SGD(one.parameters(), lr=0.0)
    plan = [
        th.Hook("watch", on="0", at="output", do=th.watch_nonfinite()),
        th.Hook("then", on="2", at="output", do=th.stats(), when=th.When(after_trip=2)),
        th.Hook("finals", on="**", at="grad_final", do=th.stats(), when=th.When(after_trip=2)),
    ]
    rig = th.attach(one, plan, optimizer=optimizer)
    train(one, optimizer, bad=True)
    assert rig._clock.tripped == BAD, rig._clock.tripped
    for id in ("then", "finals"):
        site = next(iter(rig.ledger[id].values()))
        assert (site.first, site.last, site.fired) == (BAD + 1, BAD + 2, 2), (id, site)
    rig.detach()


def who_writes(folder: Path, spread: bool) -> None:
    one = model(spread=spread)
    optimizer = torch.optim.SGD(one.parameters(), lr=0.0)
    plan = [
        th.Hook("whole", on="**", at="grad_final", do=th.stats()),
        th.Hook("own", on="0", at="output", do=th.stats()),
        th.Hook("watch", on="0", at="output", do=th.watch_nonfinite()),
    ]
    with th.attach(one, plan, optimizer=optimizer, sinks=th.Store(folder)):
        train(one, optimizer, bad=False)
    dist.barrier()
    if dist.get_rank() == 0:
        run = th.open_run(folder)
        found = run.sql(
            "select hook, list(distinct rank order by rank), count(distinct step) from rows group by hook order by hook"
        )
        assert found.fetchall() == [("own", [0, 1], STEPS), ("watch", [0], STEPS), ("whole", [0], STEPS)], found
        values = [run.curve("own", "0", "norm", rank=rank).values for rank in (0, 1)]
        assert values[0] != values[1]


def main(folder: Path) -> None:
    dist.init_process_group("gloo")
    for spread in (False, True):
        a_trip_on_one_rank(spread)
        who_writes(folder / str(spread), spread)
    print(f"rank {dist.get_rank()}: done\n", end="", flush=True)
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
