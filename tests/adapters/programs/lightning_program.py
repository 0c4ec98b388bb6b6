"""python -m tests.adapters.programs.lightning_program OUT [--die-at STEP] [--resume]"""

from __future__ import annotations

import logging
import os
import signal
import warnings
from pathlib import Path
from typing import Any

import lightning as L  # noqa: N812 - as its users do
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tenterhook.adapters.lightning import RigCallback
from tests.adapters.programs.plan import digest, options, plan

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
STEPS = 14


class Module(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 2))

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


class Die(L.Callback):
    def __init__(self, at: int) -> None:
        self.at = at

    def on_train_batch_end(self, trainer: L.Trainer, *args: Any) -> None:
        if trainer.global_step >= self.at:
            os.kill(os.getpid(), signal.SIGKILL)


class Tell(L.Callback):
    def __init__(self, rigged: RigCallback) -> None:
        self.rigged = rigged

    def on_train_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        assert self.rigged.rig is not None
        print(trainer.global_step, self.rigged.rig.step_count, digest(module, self.rigged.rig))


def main() -> None:
    given = options()
    torch.set_num_threads(1)
    L.seed_everything(0, verbose=False)
    data = TensorDataset(torch.randn(64, 6), torch.randint(2, (64,)))
    rigged = RigCallback(plan())
    callbacks: list[L.Callback] = [rigged, Tell(rigged)]
    # A checkpoint every fourth step; what died has lost the steps after the last.
    callbacks.append(ModelCheckpoint(given.out, every_n_train_steps=4, save_top_k=-1, filename="{step}"))
    if given.die_at:
        callbacks.append(Die(given.die_at))
    trainer = L.Trainer(
        max_steps=STEPS, accelerator="cpu", callbacks=callbacks, logger=False, enable_progress_bar=False,
        enable_model_summary=False, accumulate_grad_batches=2, gradient_clip_val=5.0,
    )  # fmt: skip
    saved = sorted(Path(given.out).glob("*.ckpt"), key=lambda p: int(p.stem.partition("=")[2]))
    trainer.fit(Module(), DataLoader(data, batch_size=8), ckpt_path=saved[-1] if given.resume else None)


if __name__ == "__main__":
    main()
