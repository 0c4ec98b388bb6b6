import logging
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
warnings.filterwarnings("ignore")
for name in ("lightning", "lightning.pytorch", "lightning.fabric"):
    logging.getLogger(name).setLevel(logging.ERROR)


class SensorAutoencoder(L.LightningModule):
    def __init__(self, n_features=24, latent=6, lr=3e-3):
        super().__init__()
        self.lr = lr
        self.encoder = nn.Sequential(
            nn.Linear(n_features, 32), nn.ReLU(), nn.Linear(32, latent), nn.ReLU()
        )
        self.decoder = nn.Sequential(
            nn.Linear(latent, 32), nn.ReLU(), nn.Linear(32, n_features)
        )

    def forward(self, x):
        return self.decoder(self.encoder(x))

    def training_step(self, batch, batch_idx):
        (x,) = batch
        z = self.encoder(x)
        x_hat = self.decoder(z)
        loss = nn.functional.mse_loss(x_hat, x)
        sparsity = z.abs().mean()
        return loss + 1e-3 * sparsity

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


class LatentMonitor(L.Callback):
    """Reports how many latent units are never active during an epoch."""

    def __init__(self):
        self.active = None
        self.batches = 0

    def _record(self, module, args, output):
        fired = (output.detach() > 0).any(dim=0)
        self.active = fired if self.active is None else self.active | fired
        self.batches += 1

    def on_fit_start(self, trainer, pl_module):
        self.handle = pl_module.encoder.register_forward_hook(self._record)

    def on_train_epoch_start(self, trainer, pl_module):
        self.active, self.batches = None, 0

    def on_train_epoch_end(self, trainer, pl_module):
        alive = 0 if self.active is None else int(self.active.sum())
        print(f"epoch {trainer.current_epoch}: {self.batches} batches monitored, {alive} latent units active")

    def on_fit_end(self, trainer, pl_module):
        self.handle.remove()


def make_data(n=256, n_features=24):
    factors = torch.randn(n, 4)
    mixing = torch.randn(4, n_features)
    return factors @ mixing + 0.1 * torch.randn(n, n_features)


def main():
    L.seed_everything(7, verbose=False)
    x = make_data()
    loader = DataLoader(TensorDataset(x), batch_size=32, shuffle=True)
    model = SensorAutoencoder()
    trainer = L.Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[LatentMonitor()],
    )
    trainer.fit(model, loader)
    model.eval()
    with torch.no_grad():
        error = nn.functional.mse_loss(model(x), x).item()
    print(f"reconstruction error {error:.3f}")


if __name__ == "__main__":
    main()
