"""Gradient accumulation with a moving average of the weights that follows the optimizer."""
import copy
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class TrainArgs:
    batch_size: int = 16
    accumulate: int = 8
    epochs: int = 3
    lr: float = 1e-2
    decay: float = 0.95


class Ema:
    def __init__(self, model, decay):
        self.model, self.decay = model, decay
        self.shadow = copy.deepcopy(model).requires_grad_(False)
        self.updates = 0

    def follow(self, optimizer):
        optimizer.register_step_post_hook(self.after_step)
        return self

    @torch.no_grad()
    def after_step(self, optimizer, args, kwargs):
        self.updates += 1
        for avg, p in zip(self.shadow.parameters(), self.model.parameters()):
            avg.lerp_(p, 1 - self.decay)


class Trainer:
    def __init__(self, model, args):
        self.model, self.args = model, args
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
        self.ema = Ema(model, args.decay).follow(self.optimizer)

    def train_epoch(self, loader):
        total = 0.0
        self.optimizer.zero_grad()
        for i, (x, y) in enumerate(loader):
            loss = nn.functional.mse_loss(self.model(x), y) / self.args.accumulate
            loss.backward()
            total += loss.item() * self.args.accumulate
            if (i + 1) % self.args.accumulate == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()
        return total / len(loader)


def main():
    torch.manual_seed(0)
    args = TrainArgs()
    x = torch.randn(96, 7)
    loader = DataLoader(TensorDataset(x, x[:, :2].prod(1, keepdim=True)), batch_size=args.batch_size)
    trainer = Trainer(nn.Sequential(nn.Linear(7, 32), nn.SiLU(), nn.Linear(32, 1)), args)
    for epoch in range(args.epochs):
        print(f"epoch {epoch} loss {trainer.train_epoch(loader):.5f} ema updates {trainer.ema.updates}")


if __name__ == "__main__":
    main()
