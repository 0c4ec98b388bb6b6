"""Lightning multi-task model: shared encoder with unit-length features, one head per task."""
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


def unit_length(module, inputs, output):
    return F.normalize(output, dim=-1)


class Encoder(nn.Module):
    def __init__(self, n_in, dim):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(n_in, 32), nn.ReLU(), nn.Linear(32, dim))

    def forward(self, x):
        return self.layers(x)


class LitMultiTask(L.LightningModule):
    def __init__(self, n_in=12, dim=8, n_classes=3, temperature=0.1):
        super().__init__()
        self.encoder = Encoder(n_in, dim)
        self.encoder.register_forward_hook(unit_length)
        self.class_head = nn.Linear(dim, n_classes, bias=False)
        self.value_head = nn.Linear(dim, 1)
        self.temperature = temperature
        self.feature_norms = {"train": [], "val": []}

    def forward(self, x):
        features = self.encoder(x)
        return self.class_head(features) / self.temperature, self.value_head(features).squeeze(-1)

    def task_losses(self, features, labels, values):
        logits = self.class_head(features) / self.temperature
        return F.cross_entropy(logits, labels), F.mse_loss(self.value_head(features).squeeze(-1), values)

    def training_step(self, batch, batch_idx):
        x, labels, values = batch
        features = self.encoder(x)
        self.feature_norms["train"].append(features.detach().norm(dim=-1).mean().item())
        class_loss, value_loss = self.task_losses(features, labels, values)
        self.log("class_loss", class_loss)
        self.log("value_loss", value_loss)
        return class_loss + value_loss

    def validation_step(self, batch, batch_idx):
        x, labels, values = batch
        features = self.encoder(x)
        self.feature_norms["val"].append(features.norm(dim=-1).mean().item())
        logits, predictions = self(x)
        self.log("val_acc", (logits.argmax(1) == labels).float().mean())
        self.log("val_mse", F.mse_loss(predictions, values))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def make_tasks(n=384, n_in=12, n_classes=3):
    gen = torch.Generator().manual_seed(6)
    means = 1.5 * torch.randn(n_classes, n_in, generator=gen)
    labels = torch.arange(n) % n_classes
    x = means[labels] + torch.randn(n, n_in, generator=gen)
    values = torch.tanh(x[:, 0]) - 0.5 * torch.tanh(x[:, 1])
    return x, labels, values


def main():
    L.seed_everything(2, verbose=False)
    tensors = make_tasks()
    train = TensorDataset(*(t[:320] for t in tensors))
    val = TensorDataset(*(t[320:] for t in tensors))
    model = LitMultiTask()
    trainer = L.Trainer(max_epochs=5, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, DataLoader(train, batch_size=32, shuffle=True), DataLoader(val, batch_size=64))

    metrics = trainer.callback_metrics
    print(f"class loss {metrics['class_loss'].item():.3f}  value loss {metrics['value_loss'].item():.3f}")
    print(f"val accuracy {metrics['val_acc'].item():.3f}  val mse {metrics['val_mse'].item():.3f}")
    for split, norms in model.feature_norms.items():
        print(f"{split} feature length {sum(norms) / len(norms):.3f}")


if __name__ == "__main__":
    main()
