"""Lightning module that logs how active its hidden units are in training (with dropout)."""
import logging
import warnings

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


class LitClassifier(pl.LightningModule):
    def __init__(self, lr=1e-2):
        super().__init__()
        self.lr = lr
        self.encoder = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Linear(32, 3)
        self.train_activity = []
        self.encoder.register_forward_hook(self._track_activity)

    def _track_activity(self, module, args, output):
        self.train_activity.append((output > 0).float().mean().item())

    def forward(self, x):
        return self.head(self.encoder(x))

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_acc", (self(x).argmax(dim=1) == y).float().mean())

    def on_train_epoch_end(self):
        values = self.train_activity
        mean = sum(values) / len(values)
        print(f"epoch {self.current_epoch}: {len(values)} values, training activity {mean:.3f}")
        print("   ", [round(v, 2) for v in values])
        self.train_activity.clear()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def loader(samples, shuffle):
    x = torch.randn(samples, 12)
    return DataLoader(TensorDataset(x, x[:, :3].argmax(dim=1)), batch_size=16, shuffle=shuffle)


def main():
    pl.seed_everything(0, verbose=False)
    trainer = pl.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
    )
    trainer.fit(LitClassifier(), loader(64, True), loader(48, False))
    print("training batches per epoch: 4")


if __name__ == "__main__":
    main()
