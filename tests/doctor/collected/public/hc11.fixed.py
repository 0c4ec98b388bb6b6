"""Lightning: recurrent regressor whose gradients are clipped before every optimizer step."""
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

MAX_NORM = 2.0
LEARNING_RATE = 0.05


class LitAdder(L.LightningModule):
    """The adding problem: sum the two marked entries of a sequence."""

    def __init__(self, hidden=24):
        super().__init__()
        self.rnn = nn.RNN(2, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)
        self.clip_calls = 0

    def forward(self, x):
        states, _ = self.rnn(x)
        return self.out(states[:, -1]).squeeze(-1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.mse_loss(self(x), y)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def on_before_optimizer_step(self, optimizer):
        self.clip_calls += 1
        torch.nn.utils.clip_grad_norm_(self.parameters(), MAX_NORM)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=LEARNING_RATE)


class UpdateSize(L.Callback):
    """Length of every parameter update, in units of the learning rate."""

    def __init__(self):
        self.lengths = []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.before = nn.utils.parameters_to_vector(pl_module.parameters()).detach().clone()

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        after = nn.utils.parameters_to_vector(pl_module.parameters()).detach()
        self.lengths.append(((after - self.before).norm() / LEARNING_RATE).item())


def make_adding_problem(n=320, length=15):
    gen = torch.Generator().manual_seed(3)
    values = torch.rand(n, length, generator=gen)
    marks = torch.zeros(n, length)
    for row in marks:
        row[torch.randperm(length, generator=gen)[:2]] = 1.0
    x = torch.stack([values, marks], dim=-1)
    return x, 4.0 * (values * marks).sum(dim=1)


def main():
    L.seed_everything(5, verbose=False)
    x, y = make_adding_problem()
    loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
    model, sizes = LitAdder(), UpdateSize()
    trainer = L.Trainer(max_epochs=3, accelerator="cpu", logger=False, callbacks=[sizes],
                        enable_checkpointing=False, enable_progress_bar=False,
                        enable_model_summary=False)
    trainer.fit(model, loader)
    print(f"loss of the last epoch {trainer.callback_metrics['loss'].item():.4f}")
    print(f"steps {trainer.global_step}, clip calls {model.clip_calls}, max norm {MAX_NORM}")
    print(f"longest update {max(sizes.lengths):.3f}, mean update {sum(sizes.lengths) / len(sizes.lengths):.3f}")


if __name__ == "__main__":
    main()
