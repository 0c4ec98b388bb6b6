"""Break a training on one of two ranks: all ranks must report it, with its rank, in the same step."""

from __future__ import annotations

import copy
import itertools
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

import tenterhook as th
from tests.support.ranks.launch import leave

#: the step in which the fault is planted, and the rank
STEP, RANK = 12, 1


class Quotient(nn.Module):
    """A module that divides by zero while `bad` is True."""

    def __init__(self) -> None:
        super().__init__()
        self.bad = False

    def forward(self, x: Tensor) -> Tensor:
        return x / 0.0 * 0.0 if self.bad else x


def body() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), Quotient(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))


def ddp() -> tuple[nn.Module, nn.Sequential]:
    made = body()
    return nn.parallel.DistributedDataParallel(made), made


def fsdp() -> tuple[nn.Module, nn.Sequential]:
    made = body()
    fully_shard(made[3])
    fully_shard(made)
    return made, made


def batch(step: int, rank: int) -> Tensor:
    return torch.randn(16, 8, generator=torch.Generator().manual_seed(2 * step + rank))


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, *, steps: int = 16,
    change: Callable[[int, Tensor], Tensor] = lambda step, x: x, passes: int = 1,
) -> None:  # fmt: skip
    for step in range(steps):
        optimizer.zero_grad()
        for number in range(passes):
            x = change(step * passes + number, batch(step * passes + number, rank))
            (model(x) - x[:, :1]).square().mean().backward()
        optimizer.step()


def in_module(make: Callable[[], tuple[nn.Module, nn.Sequential]], rank: int, passes: int = 1) -> str:
    model, inner = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def change(number: int, x: Tensor) -> Tensor:
        inner[2].bad = rank == RANK and number // passes == STEP  # type: ignore[union-attr]
        return x

    with tempfile.TemporaryDirectory() as folder:
        rig = th.flight(model, optimizer, folder)
        train(model, optimizer, rank, change=change, passes=passes)
        verdict = rig.verdict()
        rig.detach()
    assert verdict is not None
    return f"{verdict.code} {verdict.sentence}"


def in_data(make: Callable[[], tuple[nn.Module, nn.Sequential]], rank: int) -> str:
    model, _ = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    change = lambda step, x: x * 300.0 if rank == RANK and step == STEP else x
    with tempfile.TemporaryDirectory() as folder:
        rig = th.flight(model, optimizer, folder)
        train(model, optimizer, rank, change=change)
        verdict = rig.verdict()
        rig.detach()
    assert verdict is not None
    return f"{verdict.code} {verdict.sentence}"


def unchanged(make: Callable[[], tuple[nn.Module, nn.Sequential]], rank: int) -> str:
    """Force an examination in some steps, and compare the weights with a training that nothing watches."""
    found = []
    for watched in (False, True):
        model, _ = make()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        with tempfile.TemporaryDirectory() as folder:
            rig = th.flight(model, optimizer, folder) if watched else None
            examiner = rig._recorder.judge if rig is not None else None
            if examiner is not None:
                real = examiner._leaps_of  # type: ignore[attr-defined]
                examiner._leaps_of = lambda o, n: "asked for" if n.step % 3 == 0 else real(o, n)  # type: ignore[attr-defined]
            train(model, optimizer, rank)
            if examiner is not None:
                exams = examiner.examinations  # type: ignore[attr-defined]
                assert len(exams) == 6 and all(one.refusal is None and one.found.reproduced for one in exams), exams
            found.append([copy.deepcopy(p.detach()) for p in model.parameters()])
            if rig is not None:
                rig.detach()
    same = all(torch.equal(_local(a), _local(b)) for a, b in zip(*found, strict=True))
    return "the same weights" if same else "other weights"


def failing(rank: int) -> str:
    """Let the measurement of one rank fail in one step. The other rank must not wait for it."""
    model, _ = ddp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        rig = th.flight(model, optimizer, folder)
        samples = rig._recorder.judge._samples  # type: ignore[union-attr]
        real, steps = samples.moved, itertools.count()

        def moved(parameters: Sequence[Tensor]) -> object:
            if next(steps) == STEP and rank == RANK:
                raise MemoryError("planted")
            return real(parameters)

        samples.moved = moved
        train(model, optimizer, rank)
        rig.detach()
    return ", ".join(str(one.message).split("goes on: ")[1] for one in seen if "goes on" in str(one.message))


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


PROGRAMS: dict[str, Callable[[int], str]] = {
    "ddp module": lambda rank: in_module(ddp, rank),
    "ddp accumulated": lambda rank: in_module(ddp, rank, passes=2),
    "ddp data": lambda rank: in_data(ddp, rank),
    "ddp unchanged": lambda rank: unchanged(ddp, rank),
    "ddp failing": failing,
    "fsdp module": lambda rank: in_module(fsdp, rank),
    "fsdp data": lambda rank: in_data(fsdp, rank),
    "fsdp unchanged": lambda rank: unchanged(fsdp, rank),
}


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for name, program in PROGRAMS.items():
        if len(sys.argv) < 2 or name in sys.argv[1:]:
            print(f"rank {rank}: {name}: {program(rank)}\n", end="", flush=True)
            dist.barrier()
    leave()


if __name__ == "__main__":
    main()
