"""Lightning module that calibrates an activation range during validation (for later quantisation)."""
import logging
import warnings

import torch
import torch.nn as nn
import lightning.pytorch as pl
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")
pl.seed_everything(20, verbose=False)


class Observer:
    """Running maximum of the absolute activation and the number of samples it has seen."""

    def __init__(self):
        self.max_abs, self.samples = 0.0, 0

    def __call__(self, module, args, output):
        if not module.training:
            self.max_abs = max(self.max_abs, output.detach().abs().max().item())
            self.samples += output.shape[0]


class LitNet(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16))
        self.head = nn.Linear(16, 1)
        self.observer = Observer()
        # eval mode only: the range is taken from the validation set of the trained model
        self.body.register_forward_hook(self.observer)

    def forward(self, x):
        return self.head(self.body(x)).squeeze(-1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.mse_loss(self(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", nn.functional.mse_loss(self(x), y))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-2, weight_decay=1.0)


def data(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=g)
    return DataLoader(TensorDataset(x, 0.1 * x[:, 0]), batch_size=16)


model = LitNet()
with torch.no_grad():
    model.body[2].weight.mul_(4.0)          # deliberately wide start, shrinks during training
trainer = pl.Trainer(max_epochs=3, check_val_every_n_epoch=3, accelerator="cpu", logger=False,
                     enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(model, data(128, 1), data(64, 2))

obs = model.observer
with torch.no_grad():
    final = max(model.body(x).abs().max().item() for x, _ in data(64, 2))
print(f"val loss {trainer.callback_metrics['val_loss'].item():.4f}")
print("validation samples: 64, observed:", obs.samples)
print(f"calibrated range / range of the trained model: {obs.max_abs / final:.2f}")
print("int8 step size:", f"{obs.max_abs / 127:.5f}")
