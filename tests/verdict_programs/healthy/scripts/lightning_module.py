"""A Lightning program with two parameter groups, a schedule per step, gradient clipping and accumulation."""

import hashlib
import logging
import warnings

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


def digits():
    """Return the 8x8 digits as images and labels, split into training and test data."""
    x, y = load_digits(return_X_y=True)
    x = torch.tensor(x, dtype=torch.float32).view(-1, 1, 8, 8) / 8 - 1
    y = torch.tensor(y)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
    x, y = x[order], y[order]
    return x[:1500], y[:1500], x[1500:], y[1500:]


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.BatchNorm1d(64))
        self.head = nn.Linear(64, 10)

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.cross_entropy(self.head(self.features(x)), y)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(
            [{"params": self.features.parameters(), "lr": 1e-3}, {"params": self.head.parameters(), "lr": 5e-3}]
        )
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=530)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.set_num_threads(1)
lightning.seed_everything(53, verbose=False)
x, y, xt, yt = digits()
model = Classifier()
trainer = lightning.Trainer(
    max_steps=520,
    accumulate_grad_batches=2,
    gradient_clip_val=1.0,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    accelerator="cpu",
    max_epochs=-1,
)
trainer.fit(model, DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True))
model.eval()
acc = (model.head(model.features(xt)).argmax(1) == yt).float().mean().item()
print(f"steps {trainer.global_step}, accuracy {acc:.3f}")
assert acc > 0.93
print("digest", digest(model))
