"""Training a small recommender with gradient accumulation and a limit on the global norm.

The norm is limited as soon as the last gradient of a micro-batch group has been computed,
so that the loop itself stays free of bookkeeping.
"""
import torch
from torch import nn
from torch.autograd.graph import register_multi_grad_hook

torch.set_num_threads(1)
USERS, ITEMS, DIM, LIMIT, MICRO = 40, 60, 16, 0.5, 4


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.user_scale = nn.Parameter(torch.full((USERS, DIM), 0.3))
        self.user_net = nn.Sequential(nn.Linear(DIM, DIM), nn.Tanh())
        self.item = nn.Embedding(ITEMS, DIM)
        self.bias = nn.Parameter(torch.zeros(ITEMS))

    def forward(self, u, i):
        user = self.user_net(self.user_scale[u] * 3.0)
        return (user * self.item(i)).sum(-1) + self.bias[i]


class GlobalNormLimit:
    def __init__(self, params, limit, every):
        self.params, self.limit, self.every = list(params), limit, every
        self.count, self.applied = 0, 0
        self.handle = register_multi_grad_hook(self.params, self.limit_norm, mode="all")

    def limit_norm(self, grads):
        self.count += 1
        if self.count % self.every:
            return
        present = [p for p in self.params if p.grad is not None]
        norm = torch.stack([p.grad.norm() for p in present]).norm()
        if norm > self.limit:
            self.applied += 1
            for p in present:
                p.grad.mul_(self.limit / norm)


def ratings(n=4096):
    g = torch.Generator().manual_seed(8)
    u = torch.randint(0, USERS, (n,), generator=g)
    i = torch.randint(0, ITEMS, (n,), generator=g)
    taste = torch.randn(USERS, 3, generator=g) @ torch.randn(3, ITEMS, generator=g)
    return u, i, 2.0 * taste[u, i] + 0.1 * torch.randn(n, generator=g)


def grad_norm(model):
    return torch.stack([p.grad.norm() for p in model.parameters()]).norm().item()


def main():
    torch.manual_seed(0)
    u, i, r = ratings()
    model = TwoTower()
    limiter = GlobalNormLimit(model.parameters(), LIMIT, every=MICRO)
    opt = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    seen = []
    for step in range(30):
        opt.zero_grad()
        for micro in range(MICRO):
            idx = torch.randint(0, len(u), (64,))
            loss = nn.functional.mse_loss(model(u[idx], i[idx]), r[idx]) / MICRO
            loss.backward()
        seen.append(grad_norm(model))
        opt.step()
    print(f"loss {loss.item() * MICRO:.3f}   norm limited in {limiter.applied} of 30 steps")
    print(f"largest gradient norm given to the optimizer: {max(seen):.3f} (limit {LIMIT})")


if __name__ == "__main__":
    main()
