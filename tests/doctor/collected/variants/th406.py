"""Regression with a gradient-norm (flatness) penalty; the encoder learns ten times slower."""
import functools

import torch
from torch import nn


def damp(factor, grad):
    return grad * factor


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(5, 16), nn.Tanh())
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        return self.head(self.encoder(x)).squeeze(-1)


class FlatnessTrainer:
    def __init__(self, model, strength=0.1, factor=0.1):
        self.model = model
        self.strength = strength
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        self.handles = [
            p.register_hook(functools.partial(damp, factor))
            for p in model.encoder.parameters()
        ]

    def penalty(self, loss):
        weights = list(self.model.encoder.parameters())
        grads = torch.autograd.grad(loss, weights, create_graph=True)
        return sum(g.pow(2).sum() for g in grads)

    def step(self, x, y):
        loss = nn.functional.mse_loss(self.model(x), y)
        penalty = self.penalty(loss)
        self.optimizer.zero_grad()
        (loss + self.strength * penalty).backward()
        self.optimizer.step()
        return loss.item(), penalty.item()


def true_penalty(model, x, y):
    """The same quantity, measured on a fresh copy of the weights."""
    probe = Model()
    probe.load_state_dict(model.state_dict())
    loss = nn.functional.mse_loss(probe(x), y)
    return sum(g.pow(2).sum() for g in torch.autograd.grad(loss, list(probe.encoder.parameters()))).item()


def main():
    torch.manual_seed(0)
    model = Model()
    trainer = FlatnessTrainer(model)
    for step in range(4):
        x = torch.randn(64, 5)
        y = 3 * x[:, 0] - x[:, 1]
        expected = true_penalty(model, x, y)
        loss, penalty = trainer.step(x, y)
        print(f"step {step} loss {loss:.3f} penalty {penalty:.4f} squared gradient norm {expected:.4f}")


if __name__ == "__main__":
    main()
