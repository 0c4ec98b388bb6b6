"""Fine-tune a small ConvNeXt-like classifier and keep an eye on activation scale."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, 5, padding=2, groups=dim)
        self.norm = nn.GroupNorm(1, dim)
        self.pw1 = nn.Conv2d(dim, 2 * dim, 1)
        self.pw2 = nn.Conv2d(2 * dim, dim, 1)

    def forward(self, x):
        y = self.norm(self.dwconv(x))
        return x + self.pw2(F.gelu(self.pw1(y)))


class TinyConvNeXt(nn.Module):
    def __init__(self, dim=12, classes=4):
        super().__init__()
        self.stem = nn.Conv2d(3, dim, 4, stride=4)
        self.block = Block(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        return self.head(self.block(self.stem(x)).mean((2, 3)))


class ActivationScale:
    """Mean absolute activation per layer, one entry per training batch."""

    def __init__(self):
        self.history, self.latest = {}, {}

    def watch(self, name, layer):
        self.history[name] = []

        def hook(module, args, output):
            self.latest[name] = output.detach().abs().mean()

        layer.register_forward_hook(hook)

    def end_of_step(self):
        for name, value in self.latest.items():
            self.history[name].append(value)
        self.latest.clear()


def batch():
    y = torch.randint(0, 4, (8,))
    return torch.randn(8, 3, 16, 16) + y.view(-1, 1, 1, 1), y


model = TinyConvNeXt()
step_fn = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

# one throw-away batch so that the first measured step is not the slow one
step_fn(batch()[0])

# the compiled model shares its layers with `model`, so watch those
scale = ActivationScale()
for name in ("stem", "block.dwconv", "block.pw1", "block.pw2"):
    scale.watch(name, model.get_submodule(name))

for step in range(6):
    x, y = batch()
    loss = F.cross_entropy(step_fn(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scale.end_of_step()
    print(f"step {step} loss {loss.item():.3f}")

for name, values in scale.history.items():
    mean = torch.stack(values).mean().item() if values else 0.0
    print(f"{name:14s} batches={len(values)} mean|a|={mean:.4f}")
