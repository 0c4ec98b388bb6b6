"""Residual net in which gradients may not go through the branches for some steps (skip path only)."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))

    def forward(self, x):
        return x + self.branch(x)


class ResMLP(nn.Module):
    def __init__(self, dim=24, depth=4):
        super().__init__()
        self.stem = nn.Linear(6, dim)
        self.blocks = nn.Sequential(*[Block(dim) for _ in range(depth)])
        self.head = nn.Linear(dim, 3)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)))


class BranchGate:
    """While closed, the branches get no gradient; the stem still learns through the skips."""

    def __init__(self, model):
        self.closed = False
        for block in model.blocks:
            block.branch.register_forward_hook(self.attach)

    def attach(self, module, args, output):
        if output.requires_grad:
            output.register_hook(self.gate)

    def gate(self, grad):
        if self.closed:
            return torch.zeros_like(grad)


def grad_norm(module):
    return torch.stack([p.grad.norm() for p in module.parameters()]).norm().item()


def main():
    torch.manual_seed(0)
    x = torch.randn(256, 6)
    y = (x[:, :3] + 0.5 * x[:, 3:]).argmax(-1)
    model = ResMLP()
    gate = BranchGate(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    stem_start = model.stem.weight.detach().clone()
    for step in range(40):
        gate.closed = step < 20  # first half: warm up stem and head only
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step in (0, 19, 20, 39):
            print(f"step {step:2d} closed={gate.closed!s:5} loss {loss.item():.4f} "
                  f"grad stem {grad_norm(model.stem):.5f} blocks {grad_norm(model.blocks):.5f}")
        if step == 19:
            moved = (model.stem.weight.detach() - stem_start).norm().item()
            print(f"stem moved during the warm-up: {moved:.5f}")


if __name__ == "__main__":
    main()
