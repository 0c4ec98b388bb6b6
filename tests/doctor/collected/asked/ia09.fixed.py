"""Recommender with separate optimizers for tables and network, evaluated with EMA weights."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(8)
torch.set_num_threads(1)

USERS, ITEMS = 60, 40


class Recommender(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.users = nn.Embedding(USERS, dim)
        self.items = nn.Embedding(ITEMS, dim)
        self.score = nn.Sequential(nn.Linear(2 * dim, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, user, item):
        pair = torch.cat([self.users(user), self.items(item)], dim=-1)
        return self.score(pair).squeeze(-1)


class EMA:
    def __init__(self, model, decay):
        self.model = model
        self.decay = decay
        self.updates = 0
        self.shadow = copy.deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def update(self):
        self.updates += 1
        for avg, p in zip(self.shadow.parameters(), self.model.parameters()):
            avg.lerp_(p, 1 - self.decay)


class Trainer:
    def __init__(self, model, decay=0.98):
        self.model = model
        tables = list(model.users.parameters()) + list(model.items.parameters())
        self.optimizers = [
            torch.optim.Adagrad(tables, lr=0.1),
            torch.optim.Adam(model.score.parameters(), lr=5e-3),
        ]
        self.ema = EMA(model, decay)
        self.optimizers[-1].register_step_post_hook(self.after_step)
        self.batches = 0

    def after_step(self, optimizer, args, kwargs):
        self.ema.update()

    def train_batch(self, user, item, rating):
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss = F.mse_loss(self.model(user, item), rating)
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        self.batches += 1
        return loss.item()


def main():
    user = torch.randint(0, USERS, (1200,))
    item = torch.randint(0, ITEMS, (1200,))
    taste = torch.randn(USERS, 3) @ torch.randn(3, ITEMS)
    rating = taste[user, item] + 0.1 * torch.randn(1200)

    trainer = Trainer(Recommender())
    for epoch in range(6):
        losses = [
            trainer.train_batch(user[b], item[b], rating[b])
            for b in torch.randperm(1000).split(50)
        ]
        print(f"epoch {epoch}: train mse {sum(losses) / len(losses):.3f}")

    held = slice(1000, None)
    mse = F.mse_loss(trainer.ema.shadow(user[held], item[held]), rating[held])
    ratio = trainer.ema.updates / trainer.batches
    print(f"held-out mse of averaged weights {mse.item():.4f}")
    print(f"averaging steps per training batch: {ratio:.1f}")


if __name__ == "__main__":
    main()
