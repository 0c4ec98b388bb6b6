"""Two-tower recommender. The user tower overfits, so the gradient of its vector is limited."""
import torch
from torch import nn


class Tower(nn.Module):
    def __init__(self, count, dim):
        super().__init__()
        self.table = nn.Embedding(count, dim)
        self.project = nn.Linear(dim, dim)

    def forward(self, ids):
        return self.project(self.table(ids))


class Recommender(nn.Module):
    def __init__(self, users=50, items=80, dim=8, limit=1e-3):
        super().__init__()
        self.limit = limit
        self.item_tower = Tower(items, dim)
        self.user_tower = Tower(users, dim)
        self.score = nn.Sequential(nn.Tanh(), nn.Linear(dim, 1))

    def forward(self, users, items):
        item = self.item_tower(items)
        user = self.user_tower(users)
        if self.limit is not None and user.requires_grad:
            user.register_hook(self._limit_user)
        return self.score(user + item).squeeze(-1)

    def _limit_user(self, grad):
        return grad.clamp_(-self.limit, self.limit)


def item_gradient(limit):
    torch.manual_seed(7)
    model = Recommender(limit=limit)
    users, items = torch.randint(50, (32,)), torch.randint(80, (32,))
    clicks = torch.randint(2, (32,)).float() * 10
    nn.functional.mse_loss(model(users, items), clicks).backward()
    return {
        "user tower": model.user_tower.project.weight.grad.norm().item(),
        "item tower": model.item_tower.project.weight.grad.norm().item(),
    }


def train(steps=20):
    torch.manual_seed(0)
    model = Recommender()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for _ in range(steps):
        users, items = torch.randint(50, (64,)), torch.randint(80, (64,))
        loss = nn.functional.mse_loss(model(users, items), ((users + items) % 2).float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


if __name__ == "__main__":
    print(f"loss after training {train():.4f}")
    for limit in (None, 1e-3):
        print("limit", limit, {k: round(v, 5) for k, v in item_gradient(limit).items()})
