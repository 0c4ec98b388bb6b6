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


class FlowerClassifier(L.LightningModule):
    def __init__(self, n_features=10, classes=3):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(n_features, 32), nn.ReLU(), nn.Linear(32, 8))
        self.head = nn.Linear(8, classes)

    def forward(self, x):
        return self.head(torch.relu(self.backbone(x)))

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


class EmbeddingSpread(L.Callback):
    """Collects the backbone embeddings of the validation set and reports their spread."""

    def __init__(self):
        self.embeddings = []

    def _collect(self, module, args, output):
        if not module.training:
            self.embeddings.append(output.detach().clone())

    def on_validation_epoch_start(self, trainer, pl_module):
        self.embeddings.clear()
        self.handle = pl_module.backbone.register_forward_hook(self._collect)

    def on_validation_epoch_end(self, trainer, pl_module):
        stacked = torch.cat(self.embeddings)
        spread = stacked.std(dim=0).mean().item()
        print(f"epoch {trainer.current_epoch}: {len(stacked)} embeddings, spread {spread:.3f}")
        self.embeddings.clear()
        self.handle.remove()


def make_data(n):
    y = torch.randint(0, 3, (n,))
    x = torch.randn(n, 10)
    x[torch.arange(n), y] += 2.0
    return TensorDataset(x, y)


def main():
    L.seed_everything(3, verbose=False)
    train_set, val_set = make_data(192), make_data(64)
    print(f"validation set: {len(val_set)} samples")
    trainer = L.Trainer(
        max_epochs=4,
        accelerator="cpu",
        logger=False,
        num_sanity_val_steps=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[EmbeddingSpread()],
    )
    trainer.fit(
        FlowerClassifier(),
        DataLoader(train_set, batch_size=32, shuffle=True),
        DataLoader(val_set, batch_size=32),
    )


if __name__ == "__main__":
    main()
