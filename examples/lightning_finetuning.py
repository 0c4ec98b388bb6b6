"""Unfreeze a backbone during training, in a LightningModule whose `training_step` never calls the module itself.

`BackboneFinetuning` freezes the backbone, and unfreezes it and adds its parameters to the optimizer in a later epoch.
The clip acts on them from that epoch on. Run `pip install "tenterhook[lightning]"` first.

    python examples/lightning_finetuning.py
"""

import logging
import warnings

import lightning
import torch
from lightning.pytorch.callbacks import BackboneFinetuning
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tenterhook as th
from tenterhook.adapters.lightning import RigCallback

torch.set_num_threads(1)
warnings.filterwarnings("ignore", module="lightning")  # hides advice about loaders and workers
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16))
        self.head = nn.Linear(16, 3)

    def training_step(self, batch, number):
        x, y = batch
        return nn.functional.cross_entropy(self.head(self.backbone(x)), y)

    def configure_optimizers(self):
        return torch.optim.SGD([p for p in self.parameters() if p.requires_grad], lr=0.1)

    def on_before_zero_grad(self, optimizer):
        norms.append({n: p.grad.norm().item() for n, p in self.named_parameters() if p.grad is not None})


torch.manual_seed(0)
norms: list[dict[str, float]] = []
data = TensorDataset(torch.randn(128, 8), torch.randint(3, (128,)))
hooks = RigCallback(th.Plan([th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(0.01))]))
trainer = lightning.Trainer(
    max_epochs=4, callbacks=[BackboneFinetuning(unfreeze_backbone_at_epoch=2, verbose=False), hooks],
    accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
model = Classifier()
trainer.fit(model, DataLoader(data, batch_size=32))

print(hooks.rig.ledger["clip"])
used = [norm for step in norms for norm in step.values()]
assert any("backbone.0.weight" in step for step in norms), "the backbone was trained"
assert max(used) <= 0.01 + 1e-6, "every gradient that the optimizer used was clipped"
