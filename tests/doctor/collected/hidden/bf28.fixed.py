"""Lightning regression with heavy-tailed targets; the gradient is clipped right before every optimizer step."""
import tempfile
import warnings
import logging
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import lightning.pytorch as pl

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
MAX_NORM = 0.25


class Regressor(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1))
        self.used = []

    def on_before_optimizer_step(self, optimizer):
        # after the backward pass of the closure, before the update
        params = [p for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
        if params:
            nn.utils.clip_grad_norm_(params, MAX_NORM)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.mse_loss(self.net(x).squeeze(1), y)

    def on_train_batch_end(self, outputs, batch, batch_idx):
        norm = torch.stack([p.grad.norm() for p in self.net.parameters()]).norm()
        self.used.append(norm.item())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def heavy_tailed(n=320):
    x = torch.randn(n, 6)
    noise = torch.distributions.StudentT(2.0).sample((n,))
    return DataLoader(TensorDataset(x, 2 * x[:, 0] - x[:, 1] + 2 * noise), batch_size=32)


def main():
    pl.seed_everything(41, verbose=False)
    model = Regressor()
    trainer = pl.Trainer(max_epochs=4, accelerator="cpu", logger=False, enable_checkpointing=False,
                         enable_progress_bar=False, enable_model_summary=False,
                         default_root_dir=tempfile.mkdtemp())
    trainer.fit(model, heavy_tailed())
    used = torch.tensor(model.used)
    print(f"optimizer steps: {len(used)}, clipping threshold {MAX_NORM}")
    print(f"gradient norm of the steps: median {used.median():.3f}, largest {used.max():.3f}")
    print(f"steps above the threshold: {int((used > MAX_NORM * 1.01).sum())}")


if __name__ == "__main__":
    main()
