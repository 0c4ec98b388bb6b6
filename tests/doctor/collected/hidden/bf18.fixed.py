"""Two-task network with projected gradients (PCGrad); tensors with a large gradient are rescaled before the step."""
import torch
from torch import nn

torch.manual_seed(15)
MAX_NORM = 1.0


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.price = nn.Linear(32, 1)
        self.demand = nn.Linear(32, 1)

    def forward(self, x):
        h = self.shared(x)
        return self.price(h).squeeze(1), self.demand(h).squeeze(1)


def project(a, b):
    """Remove from a the part that conflicts with b."""
    dot = sum((x * y).sum() for x, y in zip(a, b))
    if dot >= 0:
        return a
    scale = dot / sum((y * y).sum() for y in b)
    return [x - scale * y for x, y in zip(a, b)]


model = TwoHeads()
params = list(model.parameters())
rescued = {"n": 0}


def limit_norm(p):
    norm = p.grad.norm()
    if norm > MAX_NORM:
        p.grad.mul_(MAX_NORM / norm)
        rescued["n"] += 1


optimizer = torch.optim.SGD(params, lr=0.05)
x = torch.randn(300, 8)
y_price = 4 * x[:, 0] * x[:, 1]
y_demand = -4 * x[:, 0] + 2 * x[:, 2]

worst = 0.0
for step in range(40):
    idx = torch.randint(0, 300, (64,))
    price, demand = model(x[idx])
    losses = [(price - y_price[idx]).pow(2).mean(), (demand - y_demand[idx]).pow(2).mean()]
    grads = []
    for loss in losses:
        g = torch.autograd.grad(loss, params, retain_graph=True, allow_unused=True)
        grads.append([torch.zeros_like(p) if q is None else q for p, q in zip(params, g)])
    a, b = project(grads[0], grads[1]), project(grads[1], grads[0])
    for p, u, v in zip(params, a, b):
        p.grad = u + v
        limit_norm(p)
    worst = max(worst, max(p.grad.norm().item() for p in params))
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1}: price {losses[0].item():.3f}  demand {losses[1].item():.3f}")

print(f"tensors rescaled in 40 steps: {rescued['n']}")
print(f"largest gradient norm of a tensor used by the optimizer: {worst:.3f}")
