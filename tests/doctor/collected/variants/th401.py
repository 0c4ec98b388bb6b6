"""Behaviour cloning with gradient accumulation and gradient limits."""
from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class TrainerConfig:
    limit: float = 0.05
    accumulate: int = 4
    updates: int = 5
    micro_batch: int = 8
    lr: float = 1e-2


@dataclass
class GradientGuard:
    limit: float
    handles: list = field(default_factory=list)

    def attach(self, model):
        for p in model.parameters():
            self.handles.append(p.register_hook(self.limit_gradient))
        return self

    def limit_gradient(self, grad):
        return grad.clamp(-self.limit, self.limit)


class Actor(nn.Module):
    def __init__(self, obs=8, actions=3, hidden=32):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(obs, hidden), nn.Linear(hidden, hidden)])
        self.out = nn.Linear(hidden, actions)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.out(x)


class Trainer:
    def __init__(self, model, cfg):
        self.model, self.cfg = model, cfg
        self.optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr)
        self.guard = GradientGuard(cfg.limit).attach(model)

    def fit(self):
        for update in range(self.cfg.updates):
            self.optimizer.zero_grad()
            for _ in range(self.cfg.accumulate):
                obs = torch.randn(self.cfg.micro_batch, 8)
                target = obs[:, :3] * 4
                loss = nn.functional.mse_loss(self.model(obs), target)
                loss.backward()
            largest = max(p.grad.abs().max().item() for p in self.model.parameters())
            self.optimizer.step()
            print(f"update {update} loss {loss.item():.3f} largest gradient {largest:.3f} limit {self.cfg.limit}")


if __name__ == "__main__":
    torch.manual_seed(0)
    Trainer(Actor(), TrainerConfig()).fit()
