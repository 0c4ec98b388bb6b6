"""Lightning fine-tuning: the pretrained trunk learns at half the strength of the head, by scaling its gradient."""
import tempfile
import warnings
import logging
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import lightning.pytorch as pl

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class LitNet(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(12, 32), nn.Tanh())
        self.head = nn.Linear(32, 1)
        self.trunk_grads = []

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.mse_loss(self.head(self.trunk(x)).squeeze(1), y)

    def on_before_optimizer_step(self, optimizer):
        w, h = self.trunk[0].weight.grad.norm(), self.head.weight.grad.norm()
        self.trunk_grads.append((w / h).item())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.02)


class SlowTrunk(pl.Callback):
    """Scales the gradient of the trunk by `factor` while the model is being fitted."""

    def __init__(self, factor=0.5):
        self.factor = factor
        self.handles = []

    def on_train_epoch_start(self, trainer, module):
        for p in module.trunk.parameters():
            self.handles.append(p.register_hook(lambda g: g * self.factor))

    def on_fit_end(self, trainer, module):
        for h in self.handles:
            h.remove()


def data():
    x = torch.randn(160, 12)
    y = torch.tanh(x[:, 0] - x[:, 1]) + 0.5 * x[:, 2]
    return DataLoader(TensorDataset(x, y), batch_size=16)


def main():
    pl.seed_everything(2, verbose=False)
    net = LitNet()
    trainer = pl.Trainer(max_epochs=6, accelerator="cpu", logger=False, enable_checkpointing=False,
                         enable_progress_bar=False, enable_model_summary=False,
                         callbacks=[SlowTrunk(0.5)], default_root_dir=tempfile.mkdtemp())
    trainer.fit(net, data())
    per_epoch = torch.tensor(net.trunk_grads).view(6, 10).mean(dim=1)
    for e, r in enumerate(per_epoch.tolist()):
        print(f"epoch {e}: trunk gradient / head gradient = {r:.3f}")
    drop = per_epoch[0] / per_epoch[-1]
    print("trunk still learning in the last epoch:", "yes" if drop < 8 else "hardly")


if __name__ == "__main__":
    main()
