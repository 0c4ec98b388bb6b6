"""Count the collectives that tenterhook adds to a step."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.debug import CommDebugMode

import tenterhook as th
from tenterhook.torch_internals import Connection
from tests.support.ranks.launch import leave


def counted(plan: list[th.Hook], layers: int, *, spread: bool, steps: int = 4) -> list[int]:
    """Count the collectives in each optimizer step."""
    torch.manual_seed(0)
    model: Any = nn.Sequential(*(nn.Linear(4, 4) for _ in range(layers)))
    model = fully_shard(model) if spread else nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    rig = th.attach(model, plan, optimizer=optimizer)
    found = []
    ours: list[Any] = []
    reduce = Connection.reduce

    def counting(connection: Connection, *given: Any) -> torch.Tensor:
        ours.append(given)
        return reduce(connection, *given)

    for _ in range(steps):
        model(torch.ones(2, 4)).sum().backward()
        with CommDebugMode() as counts, patch.object(Connection, "reduce", counting):
            before = len(ours)
            optimizer.step()
        assert not counts.get_total_counts(), "the process groups of the program are left alone"
        found.append(len(ours) - before)
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
#: name: plan, layers, whether the model is sharded, the collectives of each step; in the first step with numbers of the
#: whole model, one more lets the ranks decide whether tensors have to be compared
CASES: dict[str, tuple[list[th.Hook], int, bool, list[int]]] = {
    "nothing due": ([hook("stats", th.stats(), every=2, start=1)], 2, True, [0, 4, 0, 3]),
    "one observer": ([hook("stats", th.stats())], 2, True, [4, 3, 3, 3]),
    "all observers": (OBSERVERS, 2, True, [4, 3, 3, 3]),
    "many sites": (OBSERVERS, 100, True, [4, 3, 3, 3]),
    "replicas": (OBSERVERS, 2, False, [2, 0, 0, 0]),
    # one collective compares the ranks, one sums the norm, one lets the ranks agree
    "a clip": ([CLIP], 2, True, [4, 3, 3, 3]),
    "a clip of replicas": ([CLIP], 2, False, [3, 1, 1, 1]),
    "two that wait together": ([WEIGHTS, BIASES], 2, True, [4, 3, 3, 3]),
    "two, one after the other": ([CLIP, WEIGHTS], 2, True, [5, 4, 4, 4]),
    "observers and clips": ([*OBSERVERS, CLIP, hook("after", th.stats())], 2, True, [6, 5, 5, 5]),
}


def main() -> None:
    dist.init_process_group("gloo")
    for name, (plan, layers, spread, wanted) in CASES.items():
        found = counted(plan, layers, spread=spread)
        print(f"rank {dist.get_rank()}: {name}: {found}, expected {wanted}\n", end="", flush=True)
    leave()


if __name__ == "__main__":
    main()
