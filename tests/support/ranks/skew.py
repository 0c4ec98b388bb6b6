"""Check on all ranks what `th.skew` records, against numbers that a program computes by hand."""

from __future__ import annotations

import math
import shutil
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

import tenterhook as th
from tenterhook.ranks import RankGroup
from tests.support.ranks.launch import run_programs

STEPS = 8


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))

    def forward(self, x: Tensor) -> Tensor:
        loss = self.body(x).square().mean() - 1.0
        return loss if x[0, 0] < -9 else th.tap(loss, "loss")


def build() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(Net())
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def plan(*more: th.Hook, **options: object) -> list[th.Hook]:
    grads = th.Hook("grads", on="**", at="grad", do=th.skew(), **options)
    return [grads, th.Hook("loss", on="loss", at="value", do=th.skew(), **options), *more]


def train(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: list[Tensor]) -> list[float]:
    losses = []
    for x in inputs:
        optimizer.zero_grad()
        loss = model(x)
        losses.append(float(loss.detach()))
        loss.backward()
        optimizer.step()
    return losses


def inputs(rank: int) -> list[Tensor]:
    torch.manual_seed(100 + rank)
    return [torch.randn(3, 4) * (1 + step % 3) for step in range(STEPS)]


def folder(rank: int) -> Path:
    given = [tempfile.mkdtemp() if rank == 0 else ""]
    dist.broadcast_object_list(given)
    return Path(given[0])


def spread(values: list[float]) -> tuple[float, int, float, int]:
    """Return the lowest value and its rank, and the highest value and its rank."""
    known = {rank: value for rank, value in enumerate(values) if not math.isnan(value)}
    if len(set(known.values())) == 1 < len(known):
        return *(next(iter(known.values())), -1), *(next(iter(known.values())), -1)
    low, high = min(known, key=lambda rank: known[rank]), max(known, key=lambda rank: known[rank])
    return known[low], low, known[high], high


def all_values(value: object) -> list[object]:
    found: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def recorded(path: Path, hook: str) -> dict[int, dict[str, float]]:
    rows = th.Run(path).sql(f"select step, rank, name, value from rows where hook = '{hook}'").fetchall()
    assert {row[1] for row in rows} <= {0}, "the numbers are equal on all ranks, so only one rank writes them"
    found: dict[int, dict[str, float]] = {}
    for step, _, name, value in rows:
        assert name not in found.setdefault(step, {}), "a row was written twice"
        found[step][name] = value
    return found


def compare(found: dict[int, dict[str, float]], name: str, wanted: list[list[float]], steps: list[int]) -> None:
    assert sorted(found) == steps, (sorted(found), steps)
    for step in steps:
        low, low_rank, high, high_rank = spread(wanted[step])
        keys = (f"{name}_min", f"{name}_min_rank", f"{name}_max", f"{name}_max_rank")
        mine, right = [found[step][key] for key in keys], [low, low_rank, high, high_rank]
        assert all(math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-9) for a, b in zip(mine, right)), (step, mine, right)


def agrees_with_local_numbers(rank: int) -> None:
    for clip in ([], [th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(0.1))]):
        path = folder(rank)
        model, optimizer = build()
        rig = th.attach(model, plan(*clip), optimizer=optimizer, sinks=th.Store(path))
        given, local = inputs(rank), []
        squares: list[float] = []
        for p in model.parameters():
            p.register_hook(lambda g: squares.append(float(g.double().square().sum())))
        losses = []
        for x in given:
            squares.clear()
            losses += train(model, optimizer, [x])
            local.append(math.sqrt(sum(squares)))
        rig.detach()
        norms = [list(some) for some in zip(*all_values(local), strict=True)]
        values = [list(some) for some in zip(*all_values(losses), strict=True)]
        if rank == 0:
            compare(recorded(path, "grads"), "norm", norms, list(range(STEPS - 1)))
            compare(recorded(path, "loss"), "mean", values, list(range(STEPS - 1)))
            shutil.rmtree(path)


def names_the_rank_that_is_not_finite(rank: int) -> None:
    model, optimizer = build()
    rig = th.attach(model, plan(), optimizer=optimizer)
    given, bad = inputs(rank), dist.get_world_size() - 1
    train(model, optimizer, given[:2])
    given[2][0, 0] = math.nan if rank == bad else 0.0
    train(model, optimizer, given[2:3])
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    train(model, optimizer, given[3:4])
    loss, grads = rig.values("loss")["."], rig.values("grads")["."]
    assert (loss["nonfinite_max"], loss["nonfinite_max_rank"], loss["nonfinite_min"]) == (1, bad, 0), loss
    assert (grads["nonfinite_max_rank"], grads["nonfinite_min"]) == (bad, 0) and grads["nonfinite_max"] > 0, grads
    assert math.isfinite(loss["mean_max"])
    rig.detach()


def leaves_out_a_rank_without_a_value(rank: int) -> None:
    model, optimizer = build()
    rig = th.attach(model, plan(), optimizer=optimizer)
    given = inputs(rank)
    train(model, optimizer, given[:1])
    given[1][0, 0] = -10.0 if rank == 0 else 0.0
    losses = all_values(train(model, optimizer, given[1:2])[0])
    train(model, optimizer, given[2:3])
    found = rig.values("loss")["."]
    low, low_rank, high, high_rank = spread([math.nan, *losses[1:]])
    assert math.isclose(found["mean_min"], low, rel_tol=1e-6) and math.isclose(found["mean_max"], high, rel_tol=1e-6)
    assert (found["mean_min_rank"], found["mean_max_rank"]) == (low_rank, high_rank)
    rig.detach()


def is_recorded_only_when_due(rank: int) -> None:
    path = folder(rank)
    model, optimizer = build()
    with th.attach(model, plan(when=th.When(every=3)), optimizer=optimizer, sinks=th.Store(path)):
        train(model, optimizer, inputs(rank))
    if rank == 0:
        assert sorted(recorded(path, "loss")) == sorted(recorded(path, "grads")) == [0, 3, 6]
        shutil.rmtree(path)


def adds_no_exchange(rank: int) -> None:
    counts: Counter[str] = Counter()
    reduce = RankGroup._reduce

    def counted(self: RankGroup, tensor: Tensor, kind: object) -> Tensor:
        counts[phase] += 1
        return reduce(self, tensor, kind)

    RankGroup._reduce = counted
    clip = th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(1.0))
    try:
        for name, hooks in (("clip", [clip]), ("both", plan(clip)), ("alone", plan())):
            phase = "first"
            model, optimizer = build()
            rig = th.attach(model, hooks, optimizer=optimizer)
            train(model, optimizer, inputs(rank)[:2])
            phase = name
            train(model, optimizer, inputs(rank)[:5])
            phase = "last"
            rig.detach()
    finally:
        RankGroup._reduce = reduce
    assert counts["both"] == counts["clip"] == counts["alone"] == 5, counts


def is_muted_inside_join(rank: int) -> None:
    model, optimizer = build()
    rig = th.attach(model, plan(), optimizer=optimizer)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with model.join():
            train(model, optimizer, inputs(rank)[: 3 + rank])
    assert sum("skew is not recorded any more" in str(one.message) for one in caught) == 1
    assert rig.ledger["loss"].state == rig.ledger["grads"].state == "muted"
    rig.detach()


def meets_again_after_a_rank_was_late(rank: int) -> None:
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rig = th.attach(model, plan(), optimizer=optimizer, patience=2.0)
    train(model, optimizer, inputs(rank)[:2])
    time.sleep(5.0 if rank == 1 else 0.0)
    train(model, optimizer, inputs(rank)[2:4])
    assert rig.ledger["loss"].state == "muted"
    dist.barrier()  # on a busy machine, the ranks would come here too far apart
    rig.unmute("loss")
    rig.unmute("grads")
    losses = all_values(train(model, optimizer, inputs(rank)[4:6]))
    found = rig.values("loss")["."]
    assert math.isclose(found["mean_max"], max(one[0] for one in losses), rel_tol=1e-6), (found, losses)
    assert rig.ledger["loss"].state == "installed"
    rig.detach()


def does_not_stop_a_rank_that_makes_more_steps(rank: int) -> None:
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rig = th.attach(model, plan(), optimizer=optimizer, patience=3.0)
    train(model, optimizer, inputs(rank)[:2])
    if rank == 0:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            train(model, optimizer, inputs(rank)[2:5])
        assert sum("skew is not recorded any more" in str(one.message) for one in caught) == 1
        assert rig.step_count == 5


def is_kept_by_a_flight_recorder(rank: int) -> None:
    path = folder(rank) / str(rank)
    model, optimizer = build()
    flight = th.Flight(path)
    all_steps = th.Hook("all", on="**", at="grad", do=th.stats())
    with th.attach(model, plan(all_steps), optimizer=optimizer, sinks=flight):
        train(model, optimizer, inputs(rank))
    assert [one.step for one in flight._batches] == list(range(STEPS)), "a flight recorder counts batches as steps"
    assert all(("grads" in one.tables) == (rank == 0 and one.step < STEPS - 1) for one in flight._batches)


def names_the_rank_that_loads_its_data_slowly(rank: int) -> None:
    for build_model in (ddp_with_buffers, fsdp2):
        for slow in (0, 1):
            torch.manual_seed(0)
            model = build_model()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            rig = th.attach(model, th.Hook("g", on="**", at="grad", do=th.skew(time=True)), optimizer=optimizer)
            for step in range(5):
                time.sleep(0.15 * (rank == slow))
                optimizer.zero_grad()
                model(torch.randn(4, 4)).square().mean().backward()
                optimizer.step()
                if step > 1:  # the numbers are those of the step before
                    found = rig.values("g")["."]
                    assert found["seconds_max_rank"] == slow, (build_model.__name__, slow, step, found)
                    assert found["seconds_max"] - found["seconds_min"] > 0.05, found
            rig.detach()


def ddp_with_buffers() -> nn.Module:
    return nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)))


def fsdp2() -> nn.Module:
    return fully_shard(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)))


PROGRAMS = (
    agrees_with_local_numbers, names_the_rank_that_is_not_finite, leaves_out_a_rank_without_a_value,
    is_recorded_only_when_due, is_kept_by_a_flight_recorder, names_the_rank_that_loads_its_data_slowly,
    adds_no_exchange, is_muted_inside_join, meets_again_after_a_rank_was_late,
    does_not_stop_a_rank_that_makes_more_steps,
)  # fmt: skip

if __name__ == "__main__":
    run_programs({one.__name__: one for one in PROGRAMS})
