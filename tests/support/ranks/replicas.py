"""Train replicas, damage one of them at a random place, and say what `th.replicas` reported.

torchrun --nproc-per-node=3 -m tests.support.ranks.replicas FIRST COUNT [--healthy] [--every N]

Rank 0 prints one line of JSON for each case. Nothing in this file knows how replicas are compared.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import warnings
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

import tenterhook as th
from tests.support.ranks.launch import leave

#: what is done to one rank, and what the sentence should say about it
DAMAGES = {
    "weight bit": "changed in a few places",
    "weight element": "changed in a few places",
    "weight swap": "changed in a few places",
    "gradient bit": "changed in a few places",
    "gradient element": "changed in a few places",
    "gradient swap": "changed in a few places",
    "not reduced": "it was not reduced",
    "other seed": "the values have nothing in common",
    "step skipped": "count different numbers of steps|updates were not the same",
}


@dataclass
class Case:
    """A training, and what is damaged: which tensor, on which rank, in which step."""

    seed: int
    layout: str
    optimizer: str
    steps: int
    damage: str | None
    target: str
    rank: int
    step: int
    every: int


@dataclass
class Reported:
    """Holds the first report, and the number of reports."""

    step: int | None
    target: str | None
    odd: list[int]
    text: str
    count: int


def draw(seed: int, ranks: int, healthy: bool, every: int) -> Case:
    rng = random.Random(seed)
    layout = rng.choice(["ddp", "hsdp", "tp"] if ranks % 2 == 0 else ["ddp", "ddp", "hsdp"])
    steps = 200 if healthy else 8 if every == 1 else 8 + 2 * every
    damage = None if healthy else rng.choice(list(DAMAGES))
    names = ["1.weight", "1.bias"] if layout == "tp" else [f"{n}.{p}" for n in (0, 1, 3) for p in ("weight", "bias")]
    step = rng.randrange(5) if every == 1 else rng.randrange(1, steps - every - 2)
    return Case(seed, layout, rng.choice(["sgd", "adam"]), steps, damage, rng.choice(names), rng.randrange(ranks),
                step, every)  # fmt: skip


def build(case: Case) -> tuple[nn.Module, nn.Module]:
    """Return the model, and what is called to train it."""
    torch.manual_seed(case.seed)
    model = nn.Sequential(nn.Linear(24, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 24))
    size = dist.get_world_size()
    if case.layout == "ddp":
        return model, nn.parallel.DistributedDataParallel(model)
    if case.layout == "hsdp":
        shards = 2 if size % 2 == 0 and size > 2 else 1
        fully_shard(model, mesh=init_device_mesh("cpu", (size // shards, shards), mesh_dim_names=("copies", "shards")))
        return model, model
    plan = {"0": ColwiseParallel(output_layouts=Shard(1)), "1": SequenceParallel(),
            "3": RowwiseParallel(input_layouts=Shard(1))}  # fmt: skip
    parallelize_module(model, init_device_mesh("cpu", (size,)), plan)
    return model, model


def local(tensor: Any) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def hurt(tensor: Tensor, how: str, rng: random.Random) -> bool:
    """Change a tensor in place. Return False if that changed nothing."""
    flat = local(tensor).view(-1)
    before = flat.clone()
    if not len(flat):
        return False
    at = rng.randrange(len(flat))
    if how == "bit":
        words = flat.view(torch.int32)
        words[at] ^= 1 << rng.randrange(0, 30)
    elif how == "element":
        flat[at] += 0.5
    elif how == "swap":
        other = rng.randrange(len(flat))
        flat[at], flat[other] = before[other], before[at]
    else:
        flat.copy_(torch.randn(flat.shape, generator=torch.Generator().manual_seed(rng.randrange(1 << 30))))
    return not torch.equal(flat, before)


def train(case: Case) -> Reported | None:
    """Train, damage, and return what was reported, or None if the damage changed nothing on its rank."""
    rank, rng = dist.get_rank(), random.Random(case.seed + 1)
    model, called = build(case)
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.AdamW}
    options = {"momentum": 0.9} if case.optimizer == "sgd" else {}
    optimizer = kinds[case.optimizer](model.parameters(), lr=0.01, **options)
    hook = th.Hook("replicas", on="**", at="grad_final", do=th.replicas(every=case.every))
    rig = th.attach(called, hook, optimizer=optimizer)
    reported = Reported(None, None, [], "", 0)
    changed = True
    for step in range(case.steps):
        now = step == case.step and case.damage is not None
        here = now and rank == case.rank
        optimizer.zero_grad()
        not_reduced = now and case.damage == "not reduced" and case.layout == "ddp"
        with called.no_sync() if not_reduced else nullcontext():
            data = step * 100 + (0 if case.layout == "tp" else rank)
            x = torch.randn(8, 24, generator=torch.Generator().manual_seed(data))
            called(x).square().mean().backward()
        of, _, how = (case.damage or "").partition(" ")
        parameter = dict(model.named_parameters())[case.target]
        if here and of in ("weight", "gradient"):
            changed = hurt(parameter if of == "weight" else parameter.grad, how, rng)
        elif here and case.damage == "other seed":
            changed = hurt(parameter, "seed", rng)
        elif now and case.damage == "not reduced" and case.layout != "ddp":
            # FSDP2 gives no gradient if it does not reduce, so each replica gets a gradient of its own.
            for one in model.parameters() if case.layout == "hsdp" else model[1].parameters():
                own = torch.Generator().manual_seed(rank)
                local(one.grad).mul_(torch.rand(local(one).shape, generator=own) + 0.5)
        if here and case.damage == "step skipped":
            kept = [local(p).detach().clone() for p in model.parameters()]
            counts = {p: state["step"].clone() for p, state in optimizer.state.items() if "step" in state}
        optimizer.step()
        if here and case.damage == "step skipped":
            with torch.no_grad():
                for p, value in zip(model.parameters(), kept, strict=True):
                    local(p).copy_(value)
            for p, count in counts.items():
                optimizer.state[p]["step"] = count
        found = [one for one in rig.imbalances if one.code == "TH709"]
        if found and reported.step is None:
            ranks = re.search(r"on rank ([\d, ]+) differs", found[0].cause)
            odd = [int(one) for one in ranks[1].split(",")] if ranks else []
            reported = Reported(step, found[0].target, odd, found[0].cause, 0)
        reported.count = len(found)
    rig.detach()
    flag = torch.tensor([int(changed)])
    dist.all_reduce(flag, op=dist.ReduceOp.MIN)
    return reported if flag.item() else None


def judge(line: str, ranks: int) -> list[str]:
    """Return what is wrong with a report, in a word for each fault."""
    found = json.loads(line)
    case, reported = Case(**found["case"]), Reported(**found["reported"])
    if case.damage is None:
        return ["alarm"] if reported.count else []
    due = case.step + (case.damage == "step skipped")
    if reported.step is None or not due <= reported.step <= due + (case.every if case.every > 1 else 0):
        return ["not in its step"]
    faults = []
    everywhere = case.damage in ("not reduced", "step skipped")
    if reported.target != case.target and not everywhere:
        faults.append("other tensor")
    copies = ranks // 2 if case.layout == "hsdp" and ranks % 2 == 0 and ranks > 2 else ranks
    if copies >= 3 and reported.odd != [case.rank] and case.damage != "not reduced":
        faults.append("other rank")
    if re.search(DAMAGES[case.damage], reported.text) is None:
        faults.append("other cause")
    return faults


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--healthy", action="store_true")
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    for seed in range(options.first, options.first + options.count):
        case = draw(seed, dist.get_world_size(), options.healthy, options.every)
        reported = train(case)
        if dist.get_rank() == 0 and reported is not None:
            print(json.dumps({"case": asdict(case), "reported": asdict(reported)}), flush=True)
        dist.barrier()
    leave()


if __name__ == "__main__":
    main()
