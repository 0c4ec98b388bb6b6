import logging
import warnings
from collections import defaultdict

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
warnings.filterwarnings("ignore")
for name in ("lightning", "lightning.pytorch", "lightning.fabric"):
    logging.getLogger(name).setLevel(logging.ERROR)


class WaveRegressor(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(12, 32)
        self.hidden = nn.ModuleList([nn.Linear(32, 32) for _ in range(3)])
        self.head = nn.Linear(32, 1)

    def forward(self, x):
        x = torch.tanh(self.stem(x))
        for layer in self.hidden:
            x = x + torch.tanh(layer(x))
        return self.head(x).squeeze(-1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.mse_loss(self(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.mse_loss(self(x), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3)


class GradientFlow(L.Callback):
    """Mean size of the gradient that arrives at the output of each hidden layer."""

    def __init__(self):
        self.sizes = defaultdict(list)
        self.handles = []

    def _recorder(self, name):
        def record(module, grad_input, grad_output):
            self.sizes[name].append(grad_output[0].abs().mean().item())

        return record

    def on_fit_start(self, trainer, pl_module):
        for index, layer in enumerate(pl_module.hidden):
            handle = layer.register_full_backward_hook(self._recorder(f"hidden{index}"))
            self.handles.append(handle)

    def on_train_epoch_end(self, trainer, pl_module):
        for name, sizes in sorted(self.sizes.items()):
            mean = sum(sizes) / len(sizes)
            print(f"epoch {trainer.current_epoch} {name}: {len(sizes)} values, mean {mean:.5f}")
        self.sizes.clear()

    def on_fit_end(self, trainer, pl_module):
        for handle in self.handles:
            handle.remove()
        self.handles.clear()


def make_set(n):
    x = torch.randn(n, 12)
    return TensorDataset(x, torch.sin(x[:, 0]) + 0.3 * x[:, 1] * x[:, 2])


def main():
    L.seed_everything(11, verbose=False)
    trainer = L.Trainer(
        max_epochs=2,
        accelerator="cpu",
        accumulate_grad_batches=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[GradientFlow()],
    )
    train_loader = DataLoader(make_set(192), batch_size=32, shuffle=True)
    trainer.fit(WaveRegressor(), train_loader, DataLoader(make_set(64), batch_size=32))
    print(f"optimizer steps {trainer.global_step}")


if __name__ == "__main__":
    main()
