import logging
import os
import tempfile
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", ".*does not have many workers.*")


class DigitsDataModule(L.LightningDataModule):
    def __init__(self, batch_size=32):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage=None):
        digits = load_digits()
        x = torch.tensor(digits.data, dtype=torch.float32) / 16.0
        y = torch.tensor(digits.target, dtype=torch.long)
        self.train_set = TensorDataset(x, y)

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.batch_size, shuffle=True, drop_last=True)


class LitDigits(L.LightningModule):
    def __init__(self, hidden=48, lr=5e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Linear(64, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(hidden, 10),
        )
        self.batch_losses = []

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self.net(x)
        loss = F.cross_entropy(logits, y)
        self.log("train_loss", loss)
        self.batch_losses.append(loss.detach())
        return loss

    def on_train_batch_end(self, outputs, batch, batch_idx):
        # one optimizer step for two batches
        if len(self.batch_losses) == self.trainer.accumulate_grad_batches:
            mean = torch.stack(self.batch_losses).mean()
            print(f"step={self.trainer.global_step} train_loss={mean.item()!r}")
            self.batch_losses.clear()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


def main():
    L.seed_everything(42, verbose=False)
    dm = DigitsDataModule()
    model = LitDigits()
    trainer = L.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=40,
        gradient_clip_val=1.0,
        accumulate_grad_batches=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=os.environ.get("SCRIPT_OUT") or tempfile.mkdtemp(),
    )
    trainer.fit(model, datamodule=dm)
    total = sum(p.detach().double().sum().item() for p in model.parameters() if p.requires_grad)
    print(f"checksum {total!r}")


if __name__ == "__main__":
    main()
