"""Trace a CNN with torch.fx, then read activations of the traced module.

The hooks sit on convolution and ReLU layers.  One set is registered before tracing, the
other afterwards; traced and original module use the same layer objects.
"""
import torch
import torch.fx
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(23)
torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, padding=1)
        self.act = nn.ReLU()

    def forward(self, x):
        return self.act(self.conv(x))


class Net(nn.Module):
    def __init__(self, width=8, classes=4):
        super().__init__()
        self.block1 = Block(1, width)
        self.block2 = Block(width, width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = F.max_pool2d(self.block1(x), 2)
        return self.head(self.block2(x).mean((2, 3)))


def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    waves = torch.stack([xx, yy, 0.7 * (xx + yy), 0.7 * (xx - yy)])
    y = torch.randint(0, 4, (n,), generator=g)
    phase = torch.rand(n, 1, 1, generator=g) * 6.28
    x = torch.sin(1.5 * waves[y] + phase) + 0.3 * torch.randn(n, 12, 12, generator=g)
    return x.unsqueeze(1), y


class Sparsity:
    def __init__(self):
        self.zero, self.total = {}, {}

    def watch(self, model, name):
        def hook(module, args, output):
            self.zero[name] = self.zero.get(name, 0) + (output <= 0).sum().item()
            self.total[name] = self.total.get(name, 0) + output.numel()
        return model.get_submodule(name).register_forward_hook(hook)

    def report(self):
        return {n: self.zero[n] / self.total[n] for n in self.zero}


def main():
    x, y = make_data(320, seed=1)
    net = Net()
    opt = torch.optim.Adam(net.parameters(), lr=0.01)
    for step in range(50):
        idx = torch.arange(step * 64, step * 64 + 64) % len(x)
        loss = F.cross_entropy(net(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"training loss {loss.item():.4f}")

    early, late = Sparsity(), Sparsity()
    for name in ("block1.act", "block2.act"):
        early.watch(net, name)
    traced = torch.fx.symbolic_trace(net)
    for name in ("block1.act", "block2.act"):
        late.watch(traced, name)

    with torch.no_grad():
        for i in range(0, len(x), 64):
            traced(x[i:i + 64])
    for name, value in early.report().items():
        print(f"{name}: zeros {value:.4f} (hook from before tracing), {late.report()[name]:.4f} (after)")
    with torch.no_grad():
        print(f"largest output difference {(traced(x[:64]) - net(x[:64])).abs().max().item():.1e}")


if __name__ == "__main__":
    main()
