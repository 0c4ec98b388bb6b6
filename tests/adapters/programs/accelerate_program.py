"""python -m tests.adapters.programs.accelerate_program OUT [--die-at STEP] [--resume]"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tenterhook as th
from tenterhook.adapters.accelerate import keep
from tests.adapters.programs.plan import digest, options, plan

STEPS = 14


def main() -> None:
    given = options()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    plain = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 2))
    data = TensorDataset(torch.randn(8 * 2 * STEPS, 6), torch.randint(2, (8 * 2 * STEPS,)))
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-2)
    model, prepared, loader = accelerator.prepare(plain, optimizer, DataLoader(data, batch_size=8))
    rig = th.attach(model, plan(), optimizer=optimizer)
    keep(accelerator, rig)
    if given.resume:
        saved = sorted(Path(given.out).glob("*"), key=lambda p: int(p.name))
        accelerator.load_state(str(saved[-1]))
        loader = accelerator.skip_first_batches(loader, rig.step_count * 2)
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 5.0)
            prepared.step()
            prepared.zero_grad()
        if accelerator.sync_gradients and rig.step_count % 4 == 0:
            accelerator.save_state(f"{given.out}/{rig.step_count}")
        if given.die_at and rig.step_count >= given.die_at:
            os.kill(os.getpid(), signal.SIGKILL)
    print(rig.step_count, rig.step_count, digest(plain, rig))


if __name__ == "__main__":
    main()
