"""Count the collectives that tenterhook adds to a step."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.debug import CommDebugMode

import tenterhook as th
from tests.support.ranks.launch import leave


def counted(plan: list[th.Hook], layers: int, *, spread: bool, steps: int = 4) -> list[int]:
    """Count the collectives in each optimizer step."""
    torch.manual_seed(0)
    model: Any = nn.Sequential(*(nn.Linear(4, 4) for _ in range(layers)))
    model = fully_shard(model) if spread else nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    rig = th.attach(model, plan, optimizer=optimizer)
    found = []
    for _ in range(steps):
        model(torch.ones(2, 4)).sum().backward()
        with CommDebugMode() as counts:
            optimizer.step()
        found.append(counts.get_total_counts())
        optimizer.zero_grad()
    rig.detach()
    return found


def hook(id: str, do: Any, at: str = "grad_final", on: str = "**", **when: Any) -> th.Hook:
    return th.Hook(id, on=on, at=at, do=do, when=th.When(**when))


OBSERVERS = [
    hook("stats", th.stats()), hook("again", th.stats(), on="**.weight"), hook("ratio", th.ratio(), at="update"),
    hook("magnitudes", th.histogram()), hook("nonfinite", th.watch_nonfinite()), hook("leap", th.spike()),
]  # fmt: skip
CLIP = hook("clip", th.clip_norm(1.0, over="hook"))
WEIGHTS, BIASES = hook("w", th.clip_norm(1.0), on="**.weight"), hook("b", th.clip_zscore(), on="**.bias")
#: name: plan, layers, whether the model is sharded, the collectives of each step
CASES: dict[str, tuple[list[th.Hook], int, bool, list[int]]] = {
    "nothing due": ([hook("stats", th.stats(), every=2, start=1)], 2, True, [0, 2, 0, 2]),
    "one observer": ([hook("stats", th.stats())], 2, True, [2, 2, 2, 2]),
    "all observers": (OBSERVERS, 2, True, [2, 2, 2, 2]),
    "many sites": (OBSERVERS, 100, True, [2, 2, 2, 2]),
    "replicas": (OBSERVERS, 2, False, [0, 0, 0, 0]),
    # one collective sums the norm, one lets the ranks agree
    "a clip": ([CLIP], 2, True, [2, 2, 2, 2]),
    "a clip of replicas": ([CLIP], 2, False, [1, 1, 1, 1]),
    "two that wait together": ([WEIGHTS, BIASES], 2, True, [2, 2, 2, 2]),
    "two, one after the other": ([CLIP, WEIGHTS], 2, True, [3, 3, 3, 3]),
    "observers and clips": ([*OBSERVERS, CLIP, hook("after", th.stats())], 2, True, [4, 4, 4, 4]),
}


def main() -> None:
    dist.init_process_group("gloo")
    for name, (plan, layers, spread, wanted) in CASES.items():
        found = counted(plan, layers, spread=spread)
        print(f"rank {dist.get_rank()}: {name}: {found}, expected {wanted}\n", end="", flush=True)
    leave()


if __name__ == "__main__":
    main()
