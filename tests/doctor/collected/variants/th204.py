"""MoCo-style contrastive pretraining with a query encoder, a key encoder and a queue."""
import copy
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn


def make_encoder(dim):
    return nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, dim))


class MoCo(nn.Module):
    def __init__(self, dim=8, queue=64, momentum=0.99, temperature=0.2):
        super().__init__()
        self.query = make_encoder(dim)
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        self.predictor = nn.Linear(dim, dim)
        self.momentum, self.temperature = momentum, temperature
        self.register_buffer("queue", F.normalize(torch.randn(queue, dim), dim=1))

    @torch.no_grad()
    def embed(self, encoder, x):
        return F.normalize(encoder(x), dim=1)

    @torch.no_grad()
    def momentum_update(self):
        for q, k in zip(self.query.parameters(), self.key.parameters()):
            k.mul_(self.momentum).add_(q, alpha=1 - self.momentum)

    def forward(self, view1, view2):
        q = self.predictor(self.embed(self.query, view1))
        k = self.embed(self.key, view2)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ self.queue.T], dim=1) / self.temperature
        self.queue = torch.cat([k, self.queue])[: len(self.queue)]
        return F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))


def clip_and_count(counter, name, limit, grad):
    counter[name] = counter.get(name, 0) + 1
    return grad.clamp(-limit, limit)


def main():
    torch.manual_seed(0)
    model, counter = MoCo(), {}
    handles = [
        p.register_hook(partial(clip_and_count, counter, name, 0.1))
        for name, p in model.query.named_parameters()
    ]
    start = copy.deepcopy(model.query.state_dict())
    optimizer = torch.optim.SGD([*model.query.parameters(), *model.predictor.parameters()], lr=0.1)
    for step in range(6):
        x = torch.randn(32, 12)
        loss = model(x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.momentum_update()
        print(f"step {step} loss {loss.item():.3f}")
    moved = sum((model.query.state_dict()[k] - v).norm().item() for k, v in start.items())
    print(f"{len(handles)} hooks, calls {counter}, query encoder moved by {moved:.4f}")


if __name__ == "__main__":
    main()
