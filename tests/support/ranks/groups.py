"""Train models that only some of four ranks have. Every rank compares with a training by hand in plain PyTorch."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

import tenterhook as th
from tests.support.ranks.launch import run_programs

PLAN = [
    th.Hook("norms", on="**", at="grad_final", do=th.stats()),
    th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(0.05, over="hook")),
    th.Hook("moves", on="**", at="update", do=th.stats()),
]


def build(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)).double()


def batch(step: int, by: int) -> Tensor:
    return torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(100 * step + by))


def whole(tensor: Any) -> Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def by_hand(seed: int, members: list[int], steps: int = 3) -> tuple[nn.Sequential, dict[str, float]]:
    """Train on the batches of all members in one process. Return the model, and the last norms before the clip."""
    model = build(seed)
    optimizer = optimizer_of(model)
    norms: dict[str, float] = {}
    for step in range(steps):
        optimizer.zero_grad()
        for by in members:
            (model(batch(step, by)).square().mean() / len(members)).backward()
        norms = {name: one.grad.norm().item() for name, one in model.named_parameters()}
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        optimizer.step()
    return model, norms


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 3) -> None:
    for step in range(steps):
        optimizer.zero_grad()
        model(batch(step, dist.get_rank())).square().mean().backward()
        optimizer.step()


def compare(model: nn.Module, rig: th.Rig, seed: int, members: list[int]) -> None:
    reference, norms = by_hand(seed, members)
    for (name, mine), theirs in zip(getattr(model, "module", model).named_parameters(), reference.parameters()):
        torch.testing.assert_close(whole(mine.detach()), theirs.detach(), rtol=1e-6, atol=1e-12)
        found = rig.values("norms")[name]["norm"]
        assert abs(found - norms[name]) <= 1e-6 * norms[name], (name, found, norms[name])
    assert rig.ledger["clip"].fired == 3 * 4


def ddp(seed: int, group: Any) -> nn.Module:
    return nn.parallel.DistributedDataParallel(build(seed), process_group=group)


def two_models(rank: int) -> None:
    """Train an actor on ranks 0 and 1 and a critic on ranks 2 and 3, and record both in one folder."""
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("role", "dp"))["dp"]
    members = [0, 1] if rank < 2 else [2, 3]
    model: Any = fully_shard(build(rank // 2), mesh=mesh)
    optimizer = optimizer_of(model)
    folder: list[Any] = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder)
    rig = th.attach(model, PLAN, optimizer=optimizer, sinks=th.Store(folder[0]))
    train(model, optimizer)
    compare(model, rig, rank // 2, members)
    rig.detach()
    dist.barrier()
    if rank == 0:
        run = th.open_run(folder[0])
        for first, seed in ((0, 0), (2, 1)):  # the first rank of each group records what its ranks share
            norm = by_hand(seed, [first, first + 1])[1]["0.weight"]
            found = run.curve("norms", "0.weight", "norm", rank=first).values
            assert len(found) == 3 and abs(found[-1] - norm) <= 1e-6 * norm, (found, norm)
        shutil.rmtree(folder[0])


def some_ranks(rank: int) -> None:
    """Train on ranks 1 and 3. The others never attach."""
    group = dist.new_group([1, 3])
    if rank in (1, 3):
        model = ddp(0, group)
        optimizer = optimizer_of(model)
        rig = th.attach(model, PLAN, optimizer=optimizer)
        train(model, optimizer)
        compare(model, rig, 0, [1, 3])
        rig.detach()


def inside_ddp(rank: int) -> None:
    """Attach to the module inside DDP, which is on some of the ranks, and add a hook later."""
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    members = [0, 1] if rank < 2 else [2, 3]
    model = ddp(rank // 2, groups[rank // 2])
    optimizer = optimizer_of(model)
    rig = th.attach(model.module, PLAN, optimizer=optimizer)
    for step in range(3):
        optimizer.zero_grad()
        model(batch(step, rank)).square().mean().backward()
        optimizer.step()
        if step == 0:
            rig.add(th.Hook("more", on="**", at="grad_final", do=th.stats()))
    compare(model, rig, rank // 2, members)
    rig.detach()


def overlapping(rank: int) -> None:
    """Train one model on ranks 0, 1 and 2, and another one on ranks 1, 2 and 3, in turns."""
    low, high = dist.new_group([0, 1, 2]), dist.new_group([1, 2, 3])
    made = []
    for seed, members, group in ((0, [0, 1, 2], low), (1, [1, 2, 3], high)):
        if rank in members:
            model = ddp(seed, group)
            optimizer = optimizer_of(model)
            made.append((model, optimizer, th.attach(model, PLAN, optimizer=optimizer), seed, members))
    for step in range(3):
        for model, optimizer, *_ in made:
            optimizer.zero_grad()
            model(batch(step, rank)).square().mean().backward()
            optimizer.step()
    for model, _, rig, seed, members in made:
        compare(model, rig, seed, members)
        rig.detach()


def given(make: Callable[[], Any]) -> Callable[[int], None]:
    """Build a program that averages the gradients by hand, so that only the program knows the group."""

    def program(rank: int) -> None:
        group = make()
        members = [0, 1] if rank < 2 else [2, 3]
        process_group = group if isinstance(group, dist.ProcessGroup) else group.get_group()
        model = build(0)
        optimizer = optimizer_of(model)
        rig = th.attach(model, PLAN, optimizer=optimizer, group=group)
        for step in range(3):
            optimizer.zero_grad()
            model(batch(step, rank)).square().mean().backward()
            for one in model.parameters():
                dist.all_reduce(one.grad, group=process_group)
                one.grad /= 2
            optimizer.step()
        compare(model, rig, 0, members)
        rig.detach()

    return program


def pairs() -> Any:
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    return groups[dist.get_rank() // 2]


def alone(rank: int) -> None:
    """Train a model of its own on each rank."""
    groups = [dist.new_group([by]) for by in range(4)]
    model = build(rank)
    optimizer = optimizer_of(model)
    rig = th.attach(model, PLAN, optimizer=optimizer, group=groups[rank])
    train(model, optimizer)
    compare(model, rig, rank, [rank])
    saved = rig.state_dict()
    assert any(key.startswith("tenterhook/rank0/") for key in saved), "the position in the group counts"
    rig.detach()
    restored = th.restore(model, saved, optimizer=optimizer, group=groups[rank])
    assert restored.step_count == 3
    restored.detach()


def experts(rank: int, *, equal: bool) -> None:
    """Train a model whose experts are split by hand: the same names, but a part of the whole on each rank.

    If they have equal values at first, only their gradients show that they are not replicas.
    """

    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.router = nn.Linear(4, 4)
            torch.manual_seed(100 if equal else 100 + rank)
            self.expert = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.expert(self.router(x))

    model = Mixture().double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    each = th.Hook("each", on="**", at="grad_final", do=th.clip_norm(1e6))
    rig = th.attach(model, [*PLAN, each], optimizer=optimizer)
    model(batch(0, rank)).square().mean().backward()
    for one in model.router.parameters():
        dist.all_reduce(one.grad)
    squares = {name: one.grad.square().sum() for name, one in model.named_parameters()}
    for name, one in squares.items():
        if name.startswith("expert"):
            dist.all_reduce(one)
    total = torch.stack(list(squares.values())).sum().sqrt()
    before = {name: one.detach().clone() for name, one in model.named_parameters()}
    wanted = {n: before[n] - 0.1 * one.grad * (0.05 / (total + 1e-6)) for n, one in model.named_parameters()}
    optimizer.step()
    for name, one in model.named_parameters():
        torch.testing.assert_close(one.detach(), wanted[name], rtol=1e-6, atol=1e-12)
        norm = squares[name].sqrt().item()
        assert abs(rig.values("norms")[name]["norm"] - norm) <= 1e-6 * norm, name
    rig.detach()


def experts_on_meshes(rank: int) -> None:
    """Train shared layers on all ranks, and experts that are sharded over pairs of ranks and equal at first."""
    from torch.distributed.fsdp import fully_shard

    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shared, self.expert = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.expert(self.shared(x))

    torch.manual_seed(0)
    model: Any = Mixture().double()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("role", "dp"))
    fully_shard(model.expert, mesh=mesh["dp"])
    fully_shard(model.shared, mesh=init_device_mesh("cpu", (4,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rig = th.attach(model, PLAN, optimizer=optimizer)
    model(batch(0, rank)).square().mean().backward()
    grads = {name: whole(one.grad) for name, one in model.named_parameters()}
    squares = {name: grad.square().sum() for name, grad in grads.items()}
    for name, one in squares.items():
        if name.startswith("expert"):  # both ranks of a pair have the same sum
            dist.all_reduce(one)
            one /= 2
    total = torch.stack(list(squares.values())).sum().sqrt()
    optimizer.step()
    factor = min(1.0, 0.05 / (total.item() + 1e-6))
    for name, one in model.named_parameters():
        torch.testing.assert_close(whole(one.grad), grads[name] * factor, rtol=1e-6, atol=1e-12)
        norm = squares[name].sqrt().item()
        assert abs(rig.values("norms")[name]["norm"] - norm) <= 1e-6 * norm, name
    rig.detach()


def shards_beside_replicas(rank: int) -> None:
    """Check that a hook at `grad` is refused if pairs of ranks have shards of different gradients."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = parallelize_module(build(0), mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = optimizer_of(model)
    try:
        th.attach(model, th.Hook("g", on="**", at="grad", do=th.stats()), optimizer=optimizer, group=mesh)
    except th.RefusedError as error:
        assert error.fact.startswith("the parameters are sharded over some of the ranks")
    else:
        raise AssertionError("nothing was raised")


def split_optimizers(rank: int) -> None:
    """Check that optimizers of which each holds a part of the parameters are refused, with a remedy."""
    model = nn.parallel.DistributedDataParallel(build(0))
    mine = model.module[0] if rank % 2 else model.module[2]
    optimizer = optimizer_of(mine)
    try:
        th.attach(model, PLAN, optimizer=optimizer)
    except th.RefusedError as error:
        assert "holds '" in error.fact and "ZeroRedundancyOptimizer" in str(error.remedy)
    else:
        raise AssertionError("nothing was raised")


def wrong_groups(rank: int) -> None:
    """Check that a group that cannot be meant is refused at once, with a remedy."""
    model = build(0)
    optimizer = optimizer_of(model)
    for options, fact in (
        ({"group": "world"}, "group= must be a process group or a device mesh, but its type is str"),
        ({"patience": -1}, "patience= must be a positive number of seconds, but it is -1"),
    ):
        try:
            th.attach(model, PLAN, optimizer=optimizer, **options)
        except th.ResolveError as error:
            assert error.fact == fact and error.remedy
        else:
            raise AssertionError("nothing was raised")
    pair = init_device_mesh("cpu", (2, 2), mesh_dim_names=("role", "dp"))["dp"]
    if rank == 0:
        begun = time.monotonic()
        try:
            th.attach(model, PLAN, optimizer=optimizer, group=pair, patience=1.0)
        except th.RanksError as error:
            assert error.fact == "1 of 2 ranks did not call attach within 1 s: 1", error
            assert time.monotonic() - begun < 6 and "group=" in str(error.remedy)
        else:
            raise AssertionError("nothing was raised")


PROGRAMS: dict[str, Callable[[int], None]] = {
    "two models": two_models,
    "some ranks": some_ranks,
    "inside DDP": inside_ddp,
    "overlapping": overlapping,
    "a process group": given(pairs),
    "a mesh": given(lambda: init_device_mesh("cpu", (2, 2), mesh_dim_names=("role", "dp"))["dp"]),
    "alone": alone,
    "experts": partial(experts, equal=False),
    "experts that are equal at first": partial(experts, equal=True),
    "experts on meshes": experts_on_meshes,
    "shards beside replicas": shards_beside_replicas,
    "split optimizers": split_optimizers,
    "wrong groups": wrong_groups,
}


if __name__ == "__main__":
    run_programs(PROGRAMS)
