"""Lightning: class centroids of the penultimate layer are collected in validation only, by a callback."""
import logging
import tempfile
import warnings
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import lightning.pytorch as pl

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 8))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self(batch[0])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


class Centroids(pl.Callback):
    """Hook on at the start of a validation run, off at its end; the sanity check is left out."""

    def __init__(self):
        self.handle, self.rows, self.history = None, [], []

    def on_validation_start(self, trainer, module):
        if not trainer.sanity_checking:
            self.rows.clear()
            self.handle = module.body.register_forward_hook(lambda m, a, out: self.rows.append(out.clone()))

    def on_validation_end(self, trainer, module):
        if self.handle is not None:
            self.handle.remove()
            self.handle = None
            feats = torch.cat(self.rows)
            self.history.append((len(feats), feats.norm(dim=1).mean().item()))


def loader(n, shuffle):
    x = torch.randn(n, 6)
    return DataLoader(TensorDataset(x, x[:, :3].argmax(dim=1)), batch_size=20, shuffle=shuffle)


pl.seed_everything(104, verbose=False)
probe, model = Centroids(), Net()
trainer = pl.Trainer(max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, callbacks=[probe],
                     enable_progress_bar=False, enable_model_summary=False, default_root_dir=tempfile.mkdtemp())
trainer.fit(model, loader(200, True), loader(60, False))
for epoch, (rows, size) in enumerate(probe.history):
    print(f"epoch {epoch}: {rows} validation rows, mean feature length {size:.3f}")
print("hooks left on the model:", len(model.body._forward_hooks))
