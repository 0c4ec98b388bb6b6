"""Check on two ranks what `th.replicas` does besides finding differences."""

from __future__ import annotations

import time
import warnings
from collections import Counter

import torch
from torch import nn

import tenterhook as th
from tenterhook.ranks import RankGroup
from tenterhook.rig.step import replica_check
from tests.support.ranks.launch import run_programs


def build() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def hook(on: object = "**", **options: object) -> th.Hook:
    return th.Hook("replicas", on=on, at="grad_final", do=th.replicas(**{"every": 1, **options}))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()


def raises(rank: int) -> None:
    model, optimizer = build()
    rig = th.attach(model, hook(on_difference="raise"), optimizer=optimizer)
    train(model, optimizer, 2)
    before = [p.detach().clone() for p in model.parameters()]
    with torch.no_grad():
        model.module[1].bias[0] += rank
        before[3][0] += rank
    try:
        train(model, optimizer, 1)
    except th.RanksError as error:
        assert (error.hook, error.target, error.point) == ("replicas", "1.bias", "grad_final")
        assert "Only 1 of its 2 parts differs, so it was changed in a few places" in str(error)
    else:
        raise AssertionError("nothing was raised")
    assert all(torch.equal(one, p) for one, p in zip(before, model.parameters(), strict=True)), "it made the step"
    rig.detach()


def adds_no_exchange(rank: int) -> None:
    counts: Counter[str] = Counter()
    reduce = RankGroup._reduce

    def counted(self: RankGroup, tensor: torch.Tensor, kind: object) -> torch.Tensor:
        counts[phase] += 1
        return reduce(self, tensor, kind)

    RankGroup._reduce = counted
    try:
        for name, plan in (
            ("clip", [th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(1.0))]),
            ("both", [th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(1.0)), hook()]),
            ("alone", [hook()]),
        ):
            phase = "first"
            model, optimizer = build()
            rig = th.attach(model, plan, optimizer=optimizer)
            train(model, optimizer, 2)
            phase = name
            train(model, optimizer, 10)
            phase = "last"
            rig.detach()
    finally:
        RankGroup._reduce = reduce
    assert counts["both"] == counts["clip"] == counts["alone"] == 10, counts


def leaves_out(rank: int) -> None:
    model, optimizer = build()
    with torch.no_grad():
        model.module[0].weight += rank
    rig = th.attach(model, hook(("**", "!0.weight", "!1.*")), optimizer=optimizer)
    train(model, optimizer, 1)
    assert not rig.imbalances
    rig.detach()


def is_muted_inside_join(rank: int) -> None:
    model, optimizer = build()
    rig = th.attach(model, hook(), optimizer=optimizer)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with model.join():
            train(model, optimizer, 2 + rank)
    assert sum("inside join()" in str(one.message) for one in caught) == 1
    assert rig.ledger["replicas"].state == "muted"
    rig.detach()


def compares_again_after_unmute(rank: int) -> None:
    model, optimizer = build()
    rig = th.attach(model, hook(), optimizer=optimizer)
    train(model, optimizer, 2)
    with torch.no_grad():
        model.module[0].bias += rank
    train(model, optimizer, 3)
    assert [one.target for one in rig.imbalances] == ["0.bias"]
    assert rig.ledger["replicas"].state == "muted"
    fired = rig.ledger["replicas"].fired
    with torch.no_grad():
        model.module[0].bias -= rank
        for p in model.parameters():
            torch.distributed.broadcast(p, 0)
    rig.unmute("replicas")
    train(model, optimizer, 2)
    assert rig.ledger["replicas"].fired == fired + 8
    assert rig.ledger["replicas"].state == "installed"
    rig.detach()


def compares_one_step_later_on_an_accelerator(rank: int) -> None:
    here, replica_check._arrives_later = replica_check._arrives_later, lambda device: True
    try:
        for harmless in (False, True):
            model, optimizer = build()
            rig = th.attach(model, hook(), optimizer=optimizer)
            train(model, optimizer, 3)
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            gradient = model.module[1].weight.grad
            gradient[0, 0] += rank * (1e-30 if harmless else 1.0)
            gradient[0, 1] = rank * 1e-40 if harmless else gradient[0, 1]
            optimizer.step()
            assert not rig.imbalances
            train(model, optimizer, 2)
            (found,) = rig.imbalances
            if harmless:
                assert found.target is None and "differed between the ranks in step 3" in found.cause, found
            else:
                assert found.target == "1.weight" and "before step 4, and was equal before step 2" in found.cause, found
            rig.detach()
    finally:
        replica_check._arrives_later = here


def does_not_stop_a_rank_that_makes_more_steps(rank: int) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rig = th.attach(model, hook(), optimizer=optimizer, patience=3.0)
    train(model, optimizer, 2)
    if rank == 0:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            train(model, optimizer, 3)
        assert sum("they are not compared any more" in str(one.message) for one in caught) == 1
        assert rig.step_count == 5


def does_not_stop_because_of_a_slow_first_step(rank: int) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plan = [hook(), th.Hook("sizes", on="**", at="grad_final", do=th.stats())]
    rig = th.attach(model, plan, optimizer=optimizer, patience=2.0)
    time.sleep(5.0 * rank)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(model, optimizer, 3)
    said = [str(one.message) for one in caught]
    assert sum("they are not compared any more" in one for one in said) == 1, said
    assert sum("each rank measures what it has" in one for one in said) == 1, said
    assert rig.step_count == 3 and rig.ledger["sizes"].fired == 6
    (found,) = rig.imbalances
    assert found.code == "TH709" and "did not reach this step within 2 s" in found.cause, found
    rig.detach()


def sees_what_a_parameter_gains_in_place(rank: int) -> None:
    model, optimizer = build()
    rig = th.attach(model, hook(), optimizer=optimizer)
    train(model, optimizer, 2)
    model.module[0].bias.data = torch.cat([model.module[0].bias.data, torch.tensor([1.0 + rank])])
    optimizer.zero_grad()
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    assert [one.target for one in rig.imbalances] == ["0.bias"], rig.imbalances
    rig.detach()


def reports_a_tensor_that_a_rank_lacks_and_compares_the_others(rank: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rig = th.attach(model, hook(), optimizer=optimizer)
    for step in range(5):
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        if step == 2 and rank == 1:
            del optimizer.param_groups[0]["params"][1]
        if step == 4:
            with torch.no_grad():
                model[1].weight[0, 0] += rank
        optimizer.step()
    causes = {one.target: one.cause for one in rig.imbalances}
    assert causes.keys() == {"0.bias", "1.weight"}, causes
    assert "another shape or dtype on some ranks, or is not in their optimizer (1 of 4 parameters)" in causes["0.bias"]
    rig.detach()


def reports_what_differs_since_the_first_step(rank: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    with torch.no_grad():
        model[0].weight += rank
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rig = th.attach(model, hook(), optimizer=optimizer)
    for _ in range(2):
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        optimizer.step()
    (found,) = rig.imbalances
    assert found.target == "0.weight" and "has differed since the first step (1 of 4 parameters)" in found.cause, found
    rig.detach()


def compares_unusual_parameters(rank: int) -> None:
    small = torch.zeros(8, dtype=torch.uint8)
    for unusual in (
        torch.randn(9).to(torch.float8_e4m3fn), small.view(torch.float4_e2m1fn_x2), torch.ones(5, dtype=torch.int8),
        torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8), torch.empty(3, device="meta"),
        torch.ones(3, 3).to_sparse(), torch.ones(1).expand(6),
    ):  # fmt: skip
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        model.unusual = nn.Parameter(unusual, requires_grad=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rig = th.attach(model, hook(), optimizer=optimizer)
        for step in range(4):
            for p in (model.weight, model.bias):
                p.grad = torch.zeros_like(p)
            if step == 3:
                with torch.no_grad():
                    model.bias[1] += rank
            optimizer.step()
        assert [one.target for one in rig.imbalances] == ["bias"], (unusual.dtype, rig.imbalances)
        rig.detach()


PROGRAMS = (
    raises, adds_no_exchange, leaves_out, is_muted_inside_join, compares_again_after_unmute,
    compares_one_step_later_on_an_accelerator, sees_what_a_parameter_gains_in_place,
    reports_a_tensor_that_a_rank_lacks_and_compares_the_others, reports_what_differs_since_the_first_step,
    compares_unusual_parameters, does_not_stop_because_of_a_slow_first_step, does_not_stop_a_rank_that_makes_more_steps,
)  # fmt: skip

if __name__ == "__main__":
    run_programs({one.__name__: one for one in PROGRAMS})
