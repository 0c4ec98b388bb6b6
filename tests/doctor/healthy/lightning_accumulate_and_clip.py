"""Lightning with accumulation, gradient clipping, a scheduler and validation; a linear hook slows the backbone."""

import logging

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Regressor(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(6, 24), nn.Tanh())
        self.head = nn.Linear(24, 1)
        self.losses, self.validation = [], []
        for param in self.backbone.parameters():
            param.register_hook(lambda grad: 0.1 * grad)

    def forward(self, x):
        return self.head(self.backbone(x)).squeeze(-1)

    def training_step(self, batch, batch_idx):
        loss = F.mse_loss(self(batch[0]), batch[1])
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, batch_idx):
        self.validation.append(F.mse_loss(self(batch[0]), batch[1]).item())

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]


x = torch.randn(64, 6)
data = TensorDataset(x, x.sum(dim=1))
model = Regressor()
trainer = L.Trainer(
    max_epochs=2,
    accumulate_grad_batches=2,
    gradient_clip_val=5.0,
    accelerator="cpu",
    devices=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(model, DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=32))
result = [model.losses, model.validation, [p.detach().clone() for p in model.parameters()]]
