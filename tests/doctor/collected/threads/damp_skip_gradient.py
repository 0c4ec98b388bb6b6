"""Two-branch model: damp only the gradient going into the auxiliary branch."""
import torch
from torch import nn

FACTOR = 0.1


class TwoBranch(nn.Module):
    def __init__(self, damp):
        super().__init__()
        self.trunk = nn.Linear(8, 16)
        self.side = nn.Linear(8, 16)
        self.head = nn.Linear(16, 1)
        self.damp = damp

    def forward(self, x):
        main = self.trunk(x)
        side = self.side(x)
        if self.damp is not None and side.requires_grad:
            side.register_hook(self.damp)
        return self.head(main + side)


def damp_gradient(g):
    return g.mul_(FACTOR)


def grads(damp):
    torch.manual_seed(0)
    model = TwoBranch(damp)
    x = torch.randn(64, 8)
    y = x[:, :1].sin()
    loss = (model(x) - y).pow(2).mean()
    loss.backward()
    return loss.item(), {n: p.grad.norm().item() for n, p in model.named_parameters()}


loss0, plain = grads(None)
loss1, damped = grads(damp_gradient)
print(f"loss without hook {loss0:.5f}, with hook {loss1:.5f}")
print("parameter      without     with    ratio   wanted")
for n in plain:
    wanted = FACTOR if n.startswith("side") else 1.0
    print(f"{n:12s} {plain[n]:9.5f} {damped[n]:9.5f} {damped[n] / plain[n]:8.3f} {wanted:8.3f}")
