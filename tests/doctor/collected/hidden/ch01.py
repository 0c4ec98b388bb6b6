"""Latency run with a compiled model first, activation statistics afterwards."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1 = nn.Conv2d(c, c, 3, padding=1)
        self.conv2 = nn.Conv2d(c, c, 3, padding=1)

    def forward(self, x):
        return F.relu(x + self.conv2(F.relu(self.conv1(x))))


class Net(nn.Module):
    def __init__(self, c=8, classes=4):
        super().__init__()
        self.stem = nn.Conv2d(3, c, 3, 2, 1)
        self.block = Block(c)
        self.fc = nn.Linear(c, classes)

    def forward(self, x):
        return self.fc(self.block(self.stem(x)).mean((2, 3)))


class Stats:
    def __init__(self):
        self.latest, self.count, self.total = {}, {}, {}

    def hook(self, name):
        def fn(module, args, out):
            self.latest[name] = out.detach().pow(2).mean()

        return fn

    def flush(self):
        for name, value in self.latest.items():
            self.count[name] = self.count.get(name, 0) + 1
            self.total[name] = self.total.get(name, 0.0) + value.item()
        self.latest.clear()


model = Net().eval()
fast = torch.compile(model, backend="eager")
x = torch.randn(4, 3, 16, 16)
with torch.no_grad():
    for _ in range(3):
        reference = fast(x)  # timing part, no instrumentation

# the graphs above were compiled without hooks: throw them away before instrumenting
torch._dynamo.reset()
stats = Stats()
handles = [model.get_submodule(n).register_forward_hook(stats.hook(n)) for n in ("stem", "block.conv1", "block.conv2")]
with torch.no_grad():
    for _ in range(4):
        out = fast(x)
        stats.flush()
for h in handles:
    h.remove()

print("same output", torch.allclose(out, reference))
for name, n in stats.count.items():
    print(f"{name}: batches {n} mean energy {stats.total[name] / n:.4f}")
assert all(n == 4 for n in stats.count.values()) and len(stats.count) == 3
