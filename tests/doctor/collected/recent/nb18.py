"""How fast do the embeddings settle?  A Lightning run with a recorder on the encoder.

The recorder keeps the validation embeddings of every epoch.  Afterwards the program
reports how far the embedding of each validation image moved from epoch to epoch.
"""
import logging
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.set_num_threads(1)

EPOCHS = 4


class EmbeddingRecorder:
    def __init__(self, encoder):
        self.batches = []
        encoder.register_forward_hook(self)

    def __call__(self, module, args, output):
        if not module.training:
            self.batches.append(output.detach().clone())


class Classifier(L.LightningModule):
    def __init__(self, classes=3):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(8, 4))
        self.head = nn.Linear(4, classes)
        self.recorder = EmbeddingRecorder(self.encoder)

    def forward(self, x):
        return self.head(self.encoder(x))

    def training_step(self, batch, batch_idx):
        x, y = batch
        return F.cross_entropy(self(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_acc", (self(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (n,), generator=g)
    x = 0.3 * torch.randn(n, 1, 10, 10, generator=g)
    for i, c in enumerate(y.tolist()):
        if c == 0:
            x[i, 0, 4:6, :] += 1.5
        elif c == 1:
            x[i, 0, :, 4:6] += 1.5
        else:
            x[i, 0, 3:7, 3:7] += 1.5
    return TensorDataset(x, y)


def drift(batches, per_epoch):
    epochs = [torch.cat(batches[i:i + per_epoch]) for i in range(0, per_epoch * EPOCHS, per_epoch)]
    return [(b - a).norm(dim=1).mean().item() for a, b in zip(epochs, epochs[1:])]


def main():
    torch.manual_seed(18)
    train = DataLoader(make_data(256, seed=1), batch_size=32)
    val = DataLoader(make_data(160, seed=2), batch_size=32)
    model = Classifier()
    trainer = L.Trainer(
        max_epochs=EPOCHS, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, train, val)

    accuracy = trainer.callback_metrics["val_acc"].item()
    print(f"validation accuracy {accuracy:.3f} after {EPOCHS} epochs")
    batches = model.recorder.batches
    print(f"{len(batches)} batches of embeddings, {len(val)} in a validation set")
    for epoch, value in enumerate(drift(batches, len(val))):
        print(f"epoch {epoch} -> {epoch + 1}: mean movement {value:.4f}")


if __name__ == "__main__":
    main()
