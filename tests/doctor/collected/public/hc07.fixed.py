"""Lightning: a small transformer with activation checkpointing and an activation monitor."""
import logging
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Block(nn.Module):
    def __init__(self, dim, heads=2):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.up, self.act, self.down = nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim)

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.down(self.act(self.up(self.norm2(x))))


class LitTagger(L.LightningModule):
    def __init__(self, vocab=30, dim=16, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.head = nn.Linear(dim, 2)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)

    def training_step(self, batch, batch_idx):
        tokens, tags = batch
        return F.cross_entropy(self(tokens).flatten(0, 1), tags.flatten())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


class ActivationMonitor(L.Callback):
    """Counts the tokens that pass through every block and how many units stay silent."""

    def on_fit_start(self, trainer, pl_module):
        depth = len(pl_module.blocks)
        self.tokens, self.silent = [0] * depth, [0.0] * depth
        self.handles = [block.act.register_forward_hook(self.make_hook(i))
                        for i, block in enumerate(pl_module.blocks)]

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.active = True

    def on_before_backward(self, trainer, pl_module, loss):
        self.active = False

    def make_hook(self, index):
        def hook(module, inputs, output):
            if not self.active:
                return
            n = output.shape[0] * output.shape[1]
            self.tokens[index] += n
            self.silent[index] += (output == 0).float().mean().item() * n
        return hook

    def on_fit_end(self, trainer, pl_module):
        for handle in self.handles:
            handle.remove()


def main():
    L.seed_everything(1, verbose=False)
    tokens = torch.randint(0, 30, (128, 10))
    tags = (tokens.cumsum(dim=1) % 2 == 0).long()
    loader = DataLoader(TensorDataset(tokens, tags), batch_size=16, shuffle=True)
    monitor = ActivationMonitor()
    trainer = L.Trainer(max_epochs=2, accelerator="cpu", logger=False, callbacks=[monitor],
                        enable_checkpointing=False, enable_progress_bar=False,
                        enable_model_summary=False)
    trainer.fit(LitTagger(), loader)
    expected = tokens.numel() * trainer.current_epoch
    for i, (count, silent) in enumerate(zip(monitor.tokens, monitor.silent)):
        print(f"block {i}: tokens {count} of {expected}, silent units {silent / count:.3f}")
    print(f"tokens per optimizer step {monitor.tokens[0] / trainer.global_step:.1f}")


if __name__ == "__main__":
    main()
