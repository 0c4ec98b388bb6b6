"""Train a small pre-activation residual network and report how well the stem is trained.

The residual branches are damped during back-propagation (factor DAMP), a trick from
deep residual networks without normalisation at the merge point: the branch learns
slowly while the identity path carries the full error signal to the early layers.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)

DAMP = 0.1
DEPTH = 4


class Block(nn.Module):
    def __init__(self, width, damp):
        super().__init__()
        self.norm = nn.GroupNorm(2, width)
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.damp = damp

    def scale_branch(self, grad):
        return grad.mul_(self.damp)

    def forward(self, x):
        branch = self.conv2(F.relu(self.conv1(self.norm(x))))
        if branch.requires_grad and self.damp != 1.0:
            branch.register_hook(self.scale_branch)
        return x + branch


class Net(nn.Module):
    def __init__(self, damp, width=8, classes=4):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.blocks = nn.Sequential(*[Block(width, damp) for _ in range(DEPTH)])
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.blocks(self.stem(x))
        return self.head(F.relu(x).mean((2, 3)))


def make_data(n=256):
    """Stripes in four directions plus noise."""
    g = torch.Generator().manual_seed(7)
    yy, xx = torch.meshgrid(torch.arange(10.0), torch.arange(10.0), indexing="ij")
    waves = torch.stack([xx, yy, (xx + yy) * 0.7, (xx - yy) * 0.7])
    labels = torch.randint(0, 4, (n,), generator=g)
    phase = torch.rand(n, 1, 1, generator=g) * 6.28
    images = torch.sin(waves[labels] * 1.8 + phase) + 0.3 * torch.randn(n, 10, 10, generator=g)
    return images.unsqueeze(1), labels


def stem_gradient(net, x, y):
    net.zero_grad()
    F.cross_entropy(net(x), y).backward()
    value = net.stem.weight.grad.norm().item()
    net.zero_grad()
    return value


def main():
    x, y = make_data()
    net = Net(DAMP)
    plain = Net(1.0)
    plain.load_state_dict(net.state_dict())
    ratio = stem_gradient(net, x, y) / stem_gradient(plain, x, y)
    print(f"stem gradient relative to an undamped copy: ratio {ratio:.5f}")

    opt = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
    before = net.stem.weight.detach().clone()
    for step in range(40):
        idx = torch.arange(step * 64, step * 64 + 64) % len(x)
        loss = F.cross_entropy(net(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            print(f"step {step:3d} loss {loss.item():.4f}")
    with torch.no_grad():
        acc = (net(x).argmax(1) == y).float().mean().item()
    moved = (net.stem.weight.detach() - before).norm() / before.norm()
    print(f"final accuracy {acc:.3f}, stem moved {moved.item():.4f} of its norm")


if __name__ == "__main__":
    main()
