"""Lightning: a callback that gathers penultimate features for nearest-centroid evaluation."""
import logging
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class LitClassifier(L.LightningModule):
    def __init__(self, n_in=16, hidden=32, n_classes=4):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU(), nn.Linear(hidden, 8), nn.Tanh())
        self.head = nn.Linear(8, n_classes)

    def forward(self, x):
        return self.head(self.features(x))

    def training_step(self, batch, batch_idx):
        x, y = batch
        return F.cross_entropy(self(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_acc", (self(x).argmax(1) == y).float().mean())

    def test_step(self, batch, batch_idx):
        x, y = batch
        self.log("test_acc", (self(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=5e-3)


class FeatureBank(L.Callback):
    def __init__(self):
        self.rows = []

    def setup(self, trainer, pl_module, stage):
        self.handle = pl_module.features.register_forward_hook(self.store)

    def teardown(self, trainer, pl_module, stage):
        self.handle.remove()

    def store(self, module, inputs, output):
        if not module.training:
            self.rows.append(output.detach().clone())

    def on_validation_epoch_start(self, trainer, pl_module):
        self.rows.clear()

    def on_test_epoch_start(self, trainer, pl_module):
        self.rows.clear()

    def matrix(self):
        return torch.cat(self.rows)


def make_data(n=448, n_in=16, n_classes=4):
    gen = torch.Generator().manual_seed(12)
    means = torch.randn(n_classes, n_in, generator=gen)
    y = torch.randint(0, n_classes, (n,), generator=gen)
    return means[y] + torch.randn(n, n_in, generator=gen), y


def main():
    L.seed_everything(3, verbose=False)
    x, y = make_data()
    splits = {"train": slice(0, 320), "val": slice(320, 384), "test": slice(384, 448)}
    loaders = {
        name: DataLoader(TensorDataset(x[part], y[part]), batch_size=32, shuffle=(name == "train"))
        for name, part in splits.items()
    }
    bank, model = FeatureBank(), LitClassifier()
    trainer = L.Trainer(max_epochs=3, accelerator="cpu", logger=False, callbacks=[bank],
                        enable_checkpointing=False, enable_progress_bar=False,
                        enable_model_summary=False)
    trainer.fit(model, loaders["train"], loaders["val"])
    val_features = bank.matrix()
    print(f"validation: samples {len(x[splits['val']])}, feature rows {len(val_features)}")

    trainer.test(model, loaders["test"], verbose=False)
    test_features = bank.matrix()
    print(f"test: samples {len(x[splits['test']])}, feature rows {len(test_features)}")

    val_y, test_y = y[splits["val"]], y[splits["test"]]
    centroids = torch.stack([val_features[val_y == c].mean(dim=0) for c in range(4)])
    nearest = torch.cdist(test_features[:len(test_y)], centroids).argmin(dim=1)
    print(f"nearest-centroid accuracy {(nearest == test_y).float().mean().item():.3f}")
    print(f"test accuracy {trainer.callback_metrics['test_acc'].item():.3f}")


if __name__ == "__main__":
    main()
