"""Lightning callback that follows activation statistics of the training batches."""
import logging
import warnings

import lightning as L
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.set_num_threads(1)


class ActivationStats(L.Callback):
    """Mean and deviation of every ReLU, over training batches only."""

    def __init__(self):
        self.handles = []
        self.sums = {}
        self.history = []

    def on_train_start(self, trainer, pl_module):
        for name, module in pl_module.named_modules():
            if isinstance(module, nn.ReLU):
                self.handles.append(module.register_forward_hook(self.make_hook(name)))

    def make_hook(self, name):
        def hook(module, args, output):
            if not module.training:
                return
            out = output.detach()
            total, square, count = self.sums.get(name, (0.0, 0.0, 0))
            self.sums[name] = (total + out.sum().item(), square + out.pow(2).sum().item(),
                               count + out.numel())
        return hook

    def on_train_epoch_end(self, trainer, pl_module):
        report = {}
        for name, (total, square, count) in self.sums.items():
            mean = total / count
            report[name] = (mean, (square / count - mean ** 2) ** 0.5, count)
        self.history.append(report)
        self.sums = {}

    def detach(self):
        for handle in self.handles:
            handle.remove()
        self.handles = []

    def on_train_end(self, trainer, pl_module):
        self.detach()

    def on_exception(self, trainer, pl_module, exception):
        self.detach()


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 24), nn.ReLU(),
                                    nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 2))

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.cross_entropy(self.layers(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", nn.functional.cross_entropy(self.layers(x), y))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=5e-3)


def main():
    L.seed_everything(1, verbose=False)
    x = torch.randn(256, 10)
    data = TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long())
    train, val = torch.utils.data.random_split(data, [192, 64])
    stats = ActivationStats()
    trainer = L.Trainer(max_epochs=3, accelerator="cpu", logger=False, callbacks=[stats],
                        enable_checkpointing=False, enable_progress_bar=False,
                        enable_model_summary=False)
    trainer.fit(Net(), DataLoader(train, batch_size=32), DataLoader(val, batch_size=32))
    for epoch, report in enumerate(stats.history):
        for name, (mean, std, count) in report.items():
            print(f"epoch {epoch} {name}: mean {mean:.3f}, deviation {std:.3f}, {count} values")


if __name__ == "__main__":
    main()
