"""Lightning fine-tuning: the encoder starts frozen and trains from epoch 2, with limited gradients."""
import logging
import warnings

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


class TransferModel(pl.LightningModule):
    def __init__(self, unfreeze_at=2, limit=0.05, lr=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
        self.head = nn.Linear(16, 2)
        self.encoder.requires_grad_(False)
        self.calls, self.handles = 0, []

    def forward(self, x):
        return self.head(self.encoder(x))

    def limit_grad(self, grad):
        self.calls += 1
        return grad.clamp(-self.hparams.limit, self.hparams.limit)

    def on_train_epoch_start(self):
        if self.current_epoch == self.hparams.unfreeze_at:
            for p in self.encoder.parameters():
                p.requires_grad_(True)
                self.handles.append(p.register_hook(self.limit_grad))

    def training_step(self, batch, batch_idx):
        x, y = batch
        return F.cross_entropy(self(x), y)

    def configure_optimizers(self):
        trainable = [p for p in self.parameters() if p.requires_grad]
        return torch.optim.SGD(trainable, lr=self.hparams.lr)


def main():
    pl.seed_everything(0, verbose=False)
    x = torch.randn(64, 8)
    loader = DataLoader(TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long()), batch_size=16)
    model = TransferModel()
    before = model.encoder[0].weight.detach().clone()
    trainer = pl.Trainer(
        max_epochs=5, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(model, loader)
    moved = (model.encoder[0].weight - before).norm().item()
    print(f"hook calls {model.calls}, encoder moved by {moved:.4f}")


if __name__ == "__main__":
    main()
