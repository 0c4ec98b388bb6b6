"""Channel-ablation study: how much does accuracy fall when one channel is silenced?

The network is compiled once (the study evaluates it many times); each channel of the
second stage is then silenced in turn and the accuracy on the test set is measured.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(2)
torch.set_num_threads(1)

WIDTH = 6


class Stage(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(cout)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


class Net(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.stage1 = Stage(1, WIDTH)
        self.stage2 = Stage(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, x):
        x = F.max_pool2d(self.stage1(x), 2)
        x = self.stage2(x)
        return self.head(x.mean((2, 3)))


def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    waves = torch.stack([xx, yy, 0.7 * (xx + yy), 0.7 * (xx - yy)])
    y = torch.randint(0, 4, (n,), generator=g)
    phase = torch.rand(n, 1, 1, generator=g) * 6.28
    x = torch.sin(1.6 * waves[y] + phase) + 0.3 * torch.randn(n, 12, 12, generator=g)
    return x.unsqueeze(1), y


def train(net, x, y, steps=60):
    opt = torch.optim.Adam(net.parameters(), lr=0.02)
    net.train()
    for step in range(steps):
        idx = torch.arange(step * 64, step * 64 + 64) % len(x)
        loss = F.cross_entropy(net(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    net.eval()


@torch.no_grad()
def accuracy(fn, x, y):
    return (fn(x).argmax(1) == y).float().mean().item()


def silence(channel):
    def hook(module, args, output):
        output = output.clone()
        output[:, channel] = 0.0
        return output
    return hook


def main():
    x, y = make_data(384, seed=5)
    xt, yt = make_data(256, seed=6)
    net = Net()
    train(net, x, y)

    compiled = torch.compile(net, backend="eager")
    base = accuracy(compiled, xt, yt)
    print(f"test accuracy {base:.3f}")

    drops = []
    for channel in range(WIDTH):
        handle = net.stage2.register_forward_hook(silence(channel))
        drops.append(base - accuracy(net, xt, yt))
        handle.remove()
        print(f"channel {channel}: accuracy falls by {drops[-1]:.3f}")
    best = max(range(WIDTH), key=lambda c: drops[c])
    print(f"most important channel: {best}, largest fall {drops[best]:.3f}")
    expendable = sum(d < 0.01 for d in drops)
    print(f"{expendable} of {WIDTH} channels could be removed")


if __name__ == "__main__":
    main()
