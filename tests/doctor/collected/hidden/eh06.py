"""Ablation and stop-gradient on purpose: one hook returns zeros, one returns a detached output."""
import contextlib
import torch
import torch.nn as nn
import torch.nn.functional as F


class TwoPath(nn.Module):
    def __init__(self, dim=20):
        super().__init__()
        self.left = nn.Sequential(nn.Linear(8, dim), nn.Tanh())
        self.right = nn.Sequential(nn.Linear(8, dim), nn.Tanh())
        self.out = nn.Linear(dim, 3)

    def forward(self, x):
        return self.out(self.left(x) + self.right(x))


@contextlib.contextmanager
def replaced(module, fn):
    handle = module.register_forward_hook(lambda m, args, out: fn(out))
    try:
        yield
    finally:
        handle.remove()


def train(model, x, y, steps, lr=0.2):
    opt = torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(steps):
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


@torch.no_grad()
def evaluate(model, x, y):
    return F.cross_entropy(model(x), y).item()


def main():
    torch.manual_seed(0)
    x = torch.randn(300, 8)
    y = (x[:, :3] * x[:, 3:6]).argmax(-1)
    model = TwoPath()
    left_before = model.left[0].weight.detach().clone()
    # phase 1: the left path takes part in the prediction, but must not learn
    with replaced(model.left, lambda out: out.detach()):
        loss = train(model, x, y, 60)
    print(f"phase 1 loss {loss:.4f}, left untouched: {torch.equal(left_before, model.left[0].weight)}")
    # phase 2: everything learns
    loss = train(model, x, y, 60)
    print(f"phase 2 loss {loss:.4f}, left untouched: {torch.equal(left_before, model.left[0].weight)}")
    base = evaluate(model, x, y)
    for name in ("left", "right"):
        with replaced(model.get_submodule(name), torch.zeros_like):
            print(f"without {name}: {evaluate(model, x, y) - base:+.4f}")
    print(f"intact again: {evaluate(model, x, y) - base:+.4f}")


if __name__ == "__main__":
    main()
