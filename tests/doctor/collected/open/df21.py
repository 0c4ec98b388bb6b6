"""Train with a plot of hidden activations and keep a copy of the best model."""
import copy

import torch
from torch import nn

torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        return x + torch.relu(self.fc(self.norm(x)))


class Net(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.blocks = nn.ModuleList(Block(dim) for _ in range(3))
        self.out = nn.Linear(dim, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def remember(module, args, out):
    """Keep the last output on the module itself, where the plotting code looks for it."""
    module.last_out = out


def spread(model):
    return [round(b.last_out.std().item(), 3) for b in model.blocks]


def main():
    torch.manual_seed(0)
    model = Net()
    for block in model.blocks:
        block.register_forward_hook(remember)

    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    x = torch.randn(80, 16)
    y = (x[:, 0] * x[:, 1] > 0).long()
    best, best_loss = None, float("inf")
    for epoch in range(5):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        if loss.item() < best_loss:
            best_loss = loss.item()
            best = copy.deepcopy(model)
        print(f"epoch {epoch} loss {loss.item():.4f} spread {spread(model)}")

    with torch.no_grad():
        acc = (best(x).argmax(dim=1) == y).float().mean().item()
    print(f"best model: loss {best_loss:.4f}, accuracy {acc:.3f}")


if __name__ == "__main__":
    main()
