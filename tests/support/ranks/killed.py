"""Train and save checkpoints under torchrun, while single ranks are killed.

python -m torch.distributed.run --max-restarts N ... -m tests.support.ranks.killed REGIME FOLDER KILLS
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import threading
import time
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import tenterhook as th
from tests.support.ranks.launch import leave
from tests.support.ranks.state import spread, train, whole

STEPS, EVERY = 60, 4
#: a rank is killed within this number of seconds after the start
SOON = 1.5


def plan() -> th.Plan:
    return th.Plan([
        th.Hook("z", on="**", at="grad_final", do=th.clip_zscore(z=0.5, warmup=2)),
        th.Hook("own", on="**", at="grad", do=th.clip_zscore(z=0.5, warmup=2)),
        th.Hook("leap", on="**", at="grad_final", do=th.spike()),
    ])  # fmt: skip


def die_sometime(folder: Path, kills: int) -> None:
    """Kill one rank of each attempt at a random moment, until the given number of kills is reached."""
    attempt, world, rank = (
        int(os.environ["TORCHELASTIC_RESTART_COUNT"]),
        int(os.environ["WORLD_SIZE"]),
        int(os.environ["RANK"]),
    )
    draw = random.Random(f"{folder.name} {attempt}")
    victim, after = draw.randrange(world), draw.uniform(0, SOON)
    if rank == victim and attempt < kills:

        def die() -> None:
            time.sleep(after)
            with (folder / "kills").open("a") as log:
                log.write(f"{time.time()}\n")
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=die, daemon=True).start()


def save(folder: Path, step: int, model: Any, optimizer: Any, rig: th.Rig) -> None:
    model_state, optimizer_state = get_state_dict(model, optimizer)
    under_way = folder / "under-way"
    dcp.save({"model": model_state, "optimizer": optimizer_state, "hooks": rig}, checkpoint_id=under_way)
    dist.barrier()
    if dist.get_rank() == 0:
        under_way.rename(folder / f"step-{step:04}")
    dist.barrier()


def restored(folder: Path, model: Any, optimizer: Any) -> tuple[th.Rig, int]:
    found = sorted(folder.glob("step-*"))
    if dist.get_rank() == 0:
        shutil.rmtree(folder / "under-way", ignore_errors=True)
    dist.barrier()
    if not found:
        return th.attach(model, plan(), optimizer=optimizer), 0
    model_state, optimizer_state = get_state_dict(model, optimizer)
    held = th.DcpState(found[-1])
    dcp.load({"model": model_state, "optimizer": optimizer_state, "hooks": held}, checkpoint_id=found[-1])
    set_state_dict(model, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state)
    rig = th.restore(model, held.state_dict(), optimizer=optimizer)
    return rig, rig.step_count


def main(regime: str, folder: Path, kills: int) -> None:
    warnings.simplefilter("ignore")
    with (folder / "starts").open("a") as log:
        log.write(f"{time.time()}\n")
    # If a rank is killed under torchrun while the ranks connect, gloo searches for it for minutes, also in the next
    # attempt.
    under_torchrun = "TORCHELASTIC_RUN_ID" in os.environ
    if not under_torchrun:
        die_sometime(folder, kills)
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    if under_torchrun:
        die_sometime(folder, kills)
    model = spread(regime)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rig, begun = restored(folder, model, optimizer)
    for step in range(begun, STEPS, EVERY):
        train(model, optimizer, range(step, step + EVERY))
        save(folder, step + EVERY, model, optimizer, rig)
    local = {id: {n: t.tolist() for n, t in rig._attached_hook(id).state.packed.items()} for id in rig.ledger}
    weights = [whole(p.detach()).flatten().tolist() for p in model.parameters()]
    (folder / f"end-{dist.get_rank()}").write_text(repr((rig.step_count, weights, local, rig.ledger["z"].fired)))
    leave()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
