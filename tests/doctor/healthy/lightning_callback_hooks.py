"""Lightning: a callback puts hooks on at the start of the fit and takes them off at its end."""

import logging

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
        self.losses = []

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


class HookLogger(L.Callback):
    def __init__(self):
        self.activations, self.norms, self.handles = [], {}, []

    def on_fit_start(self, trainer, pl_module):
        self.handles.append(
            pl_module.net[1].register_forward_hook(lambda m, args, out: self.activations.append(out.detach().mean()))
        )
        for name, param in pl_module.named_parameters():
            self.handles.append(
                param.register_hook(lambda grad, name=name: self.norms.setdefault(name, []).append(grad.norm()))
            )

    def on_fit_end(self, trainer, pl_module):
        for handle in self.handles:
            handle.remove()


model, callback = Classifier(), HookLogger()
data = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(3, (64,))), batch_size=8, shuffle=True)
trainer = L.Trainer(
    max_steps=6,
    accelerator="cpu",
    devices=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    callbacks=[callback],
)
trainer.fit(model, data)
assert len(callback.activations) == 6
result = [model.losses, callback.activations, callback.norms, [p.detach().clone() for p in model.parameters()]]
