"""Save on n ranks, and continue on m ranks.

python -m torch.distributed.run ... -m tests.support.ranks.state REGIME PHASE FOLDER    # PHASE is save, go or all
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import tenterhook as th
from tests.support.ranks.launch import leave

HALF, BATCH = 6, 8


def spread(regime: str) -> nn.Module:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3)).double()
    if regime == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard

    for layer in (model[0], model[2]):
        fully_shard(layer)
    return fully_shard(model)


def plan() -> th.Plan:
    return th.Plan([
        th.Hook("z", on="**", at="grad_final", do=th.clip_zscore(z=0.5, warmup=2)),
        th.Hook("leap", on="**", at="grad_final", do=th.spike()),
        th.Hook("norms", on="**", at="grad_final", do=th.stats()),
        th.Hook("own", on="0.weight", at="grad", do=th.clip_zscore(z=1e9)),  # each rank has its own mean
    ])  # fmt: skip


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    world, rank = dist.get_world_size(), dist.get_rank()
    for step in steps:
        x = torch.randn(BATCH, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        model(x.chunk(world)[rank]).square().mean().backward()
        optimizer.step()


def whole(tensor: Any) -> torch.Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def outcome(model: nn.Module, rig: th.Rig) -> dict[str, Any]:
    return {
        "weights": [whole(p.detach()).flatten().tolist() for p in model.parameters()],
        "numbers": rig.values("norms"),
        "state": {id: {n: t.tolist() for n, t in rig._attached_hook(id).state.packed.items()} for id in ("z", "leap")},
        "fired": {id: rig.ledger[id].fired for id in ("z", "leap", "norms")},
        "changed": rig.ledger["z"].changed,
        "step": rig.step_count,
        "notes": rig.loaded.notes if rig.loaded is not None else [],
    }


def main(regime: str, phase: str, folder: str) -> None:
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    model = spread(regime)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if phase == "go":
        model_state, optimizer_state = get_state_dict(model, optimizer)
        held = th.DcpState(folder)
        found = {"model": model_state, "optimizer": optimizer_state, "hooks": held}
        dcp.load(found, checkpoint_id=folder)
        set_state_dict(model, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state)
        rig = th.restore(model, held.state_dict(), optimizer=optimizer)
        train(model, optimizer, range(HALF, 2 * HALF))
    else:
        rig = th.attach(model, plan(), optimizer=optimizer)
        train(model, optimizer, range(HALF if phase == "save" else 2 * HALF))
    if phase == "save":
        model_state, optimizer_state = get_state_dict(model, optimizer)
        dcp.save({"model": model_state, "optimizer": optimizer_state, "hooks": rig}, checkpoint_id=folder)
    else:
        print(f"outcome {json.dumps(outcome(model, rig))}\n", end="", flush=True)
    rig.detach()
    leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
