"""Lightning classifier that gathers penultimate features at test time."""
import logging
import warnings

import lightning as L
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.set_num_threads(1)


class FeatureClassifier(L.LightningModule):
    def __init__(self, dim=12, hidden=16, classes=3):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, hidden))
        self.head = nn.Linear(hidden, classes)
        self.features = []

    def setup(self, stage):
        self.handle = self.backbone.register_forward_hook(self.collect)

    def teardown(self, stage):
        self.handle.remove()

    def collect(self, module, args, output):
        if self.trainer.testing:
            self.features.append(output.detach())

    def forward(self, x):
        return self.head(self.backbone(x).relu())

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_acc", (self(x).argmax(1) == y).float().mean())

    def on_test_epoch_start(self):
        self.features.clear()

    def test_step(self, batch, batch_idx):
        x, y = batch
        self.log("test_acc", (self(x).argmax(1) == y).float().mean())

    def on_test_epoch_end(self):
        self.bank = torch.cat(self.features)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def make_loader(n, centers, shuffle=False):
    y = torch.randint(0, 3, (n,))
    x = centers[y] + torch.randn(n, centers.shape[1])
    return DataLoader(TensorDataset(x, y), batch_size=32, shuffle=shuffle)


def main():
    L.seed_everything(0, verbose=False)
    centers = torch.randn(3, 12) * 1.5
    train, val, test = (make_loader(192, centers, True), make_loader(64, centers),
                        make_loader(96, centers))
    model = FeatureClassifier()
    trainer = L.Trainer(max_epochs=2, accelerator="cpu", logger=False,
                        enable_checkpointing=False, enable_progress_bar=False,
                        enable_model_summary=False)
    trainer.fit(model, train, val)
    result = trainer.test(model, test, verbose=False)[0]
    print(f"test accuracy {result['test_acc']:.3f}")
    print(f"test samples: {len(test.dataset)}, rows in the feature bank: {len(model.bank)}")


if __name__ == "__main__":
    main()
