"""Deep residual network whose branches receive damped gradients early in training.

Damping only concerns the residual branches; the identity path is meant to carry the full
gradient down to the stem from the first step on.
"""
import torch
from torch import nn

torch.set_num_threads(1)
DEPTH, WIDTH = 8, 32


class BranchDamping:
    """Scale for branch gradients that rises linearly from `start` to one."""

    def __init__(self, start, steps):
        self.start, self.steps, self.t = start, steps, 0

    def scale(self):
        return min(1.0, self.start + (1 - self.start) * self.t / self.steps)

    def __call__(self, grad):
        return grad * self.scale()


class ResidualBlock(nn.Module):
    def __init__(self, damping):
        super().__init__()
        self.damping = damping
        self.norm = nn.LayerNorm(WIDTH)
        self.fc1, self.fc2 = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        branch = self.fc2(torch.relu(self.fc1(self.norm(x))))
        if branch.requires_grad:
            branch.register_hook(self.damping)
        return x + branch


class ResNet1d(nn.Module):
    def __init__(self, damping):
        super().__init__()
        self.stem = nn.Linear(10, WIDTH)
        self.blocks = nn.Sequential(*[ResidualBlock(damping) for _ in range(DEPTH)])
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x))).squeeze(-1)


def make_data(n=512):
    g = torch.Generator().manual_seed(15)
    x = torch.randn(n, 10, generator=g)
    return x, (x[:, 0] * x[:, 1]).tanh() + x[:, 2:5].sum(1)


def main():
    torch.manual_seed(0)
    x, y = make_data()
    damping = BranchDamping(start=0.1, steps=60)
    net = ResNet1d(damping)
    opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    stem_norms = []
    for step in range(80):
        idx = torch.randint(0, len(x), (64,))
        loss = nn.functional.mse_loss(net(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        stem_norms.append(net.stem.weight.grad.norm().item())
        opt.step()
        damping.t += 1
    print(f"loss after 80 steps {loss.item():.4f}")
    print("stem gradient norm, steps 0, 10, 20:", " ".join(f"{stem_norms[i]:.6f}" for i in (0, 10, 20)))


if __name__ == "__main__":
    main()
