"""Lightning run with a callback that reports how many hidden units were silent on the training data."""
import tempfile
import warnings
import logging
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import lightning.pytorch as pl

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Classifier(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(8, 64), nn.ReLU())
        self.out = nn.Linear(64, 2)

    def forward(self, x):
        return self.out(self.hidden(x))

    def training_step(self, batch, _):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def validation_step(self, batch, _):
        x, y = batch
        self.log("val_loss", nn.functional.cross_entropy(self(x), y))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


class SilentUnits(pl.Callback):
    """Counts activations of the hidden layer over the training set, for the pruning decision."""

    def on_fit_start(self, trainer, module):
        self.active = torch.zeros(64)
        self.rows = 0
        self.handle = module.hidden.register_forward_hook(self.count)

    def count(self, layer, args, out):
        if not layer.training:
            return
        self.active += (out > 0).sum(dim=0)
        self.rows += len(out)

    def on_fit_end(self, trainer, module):
        self.handle.remove()


def loader(n, shift, shuffle):
    x = torch.randn(n, 8) + shift
    y = (x[:, 0] > shift).long()
    return DataLoader(TensorDataset(x, y), batch_size=32, shuffle=shuffle)


pl.seed_everything(13, verbose=False)
train, val = loader(256, 0.0, True), loader(128, 2.0, False)      # validation: a shifted population
probe = SilentUnits()
trainer = pl.Trainer(max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False,
                     enable_progress_bar=False, enable_model_summary=False, callbacks=[probe],
                     default_root_dir=tempfile.mkdtemp())
model = Classifier()
trainer.fit(model, train, val)

rate = probe.active / probe.rows
print(f"training rows: 256 x 3 epochs, rows in the statistics: {probe.rows}")
print(f"mean firing rate {rate.mean():.3f}, units below 30%: {int((rate < 0.3).sum())}")
