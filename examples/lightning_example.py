"""Run a plan in Lightning's Trainer, read its recorded curves, and resume its clip from a checkpoint.

The callback attaches the plan after Lightning has wrapped and restored the model, and saves the state of the hooks in
Lightning's own checkpoints. Run `pip install "tenterhook[lightning,record]" scikit-learn` first.

    python examples/lightning_example.py
"""

import logging
import tempfile
import warnings

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tenterhook as th
from tenterhook.adapters.lightning import RigCallback

torch.set_num_threads(1)
warnings.filterwarnings("ignore", module="lightning")  # hides advice about loaders and workers
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Digits(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def training_step(self, batch, number):
        images, labels = batch
        return nn.functional.cross_entropy(self.net(images), labels)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def fit(model, callback, epochs, checkpoint=None):
    trainer = lightning.Trainer(
        max_epochs=epochs, callbacks=[callback], accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, loader, ckpt_path=checkpoint)
    return trainer


digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 16
loader = DataLoader(TensorDataset(images, torch.tensor(digits.target)), batch_size=64)
plan = th.Plan([
    th.Hook("grads", on="**", at="grad_final", do=th.stats()),
    th.Hook("clip", on="**", at="grad_final", do=th.clip_zscore(z=1.0, warmup=10)),
])  # fmt: skip

with tempfile.TemporaryDirectory() as folder:
    torch.manual_seed(0)
    straight = Digits()
    fit(straight, RigCallback(plan), 2)

    torch.manual_seed(0)
    trainer = fit(Digits(), RigCallback(plan, sinks=th.Store(f"{folder}/run")), 1)
    trainer.save_checkpoint(f"{folder}/first.ckpt")
    resumed = Digits()  # this model has different weights until the checkpoint is loaded
    fit(resumed, RigCallback(plan, sinks=th.Store(f"{folder}/run")), 2, checkpoint=f"{folder}/first.ckpt")

    run = th.open_run(f"{folder}/run")
    norm = run.curve("grads", "net.2.weight", "norm")
    change = run.curve("clip", "net.2.weight", "change")  # every modifier records it in one step in ten

print("net.2.weight: the gradient norm, and the fraction that the clip removed")
for step, part in zip(*change, strict=True):
    print(f"  step {step:2}: {norm.values[step]:.3f}, {part:4.0%}")
same = all(torch.equal(p, q) for p, q in zip(straight.parameters(), resumed.parameters(), strict=True))
print(f"the weights of the resumed run equal those of an uninterrupted run: {same}")

assert norm.steps == list(range(2 * len(loader))), "one curve over both parts of the run"
assert same
