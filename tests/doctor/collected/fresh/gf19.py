"""Measure the effect of fake-quantised activations, then go back to full precision for training."""
import torch
import torch.nn as nn

torch.manual_seed(19)


class ResBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv = nn.Conv2d(c, c, 3, padding=1)

    def forward(self, x):
        return x + torch.relu(self.conv(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 6, 3, padding=1)
        self.blocks = nn.Sequential(*[ResBlock(6) for _ in range(3)])
        self.fc = nn.Linear(6, 2)

    def forward(self, x):
        return self.fc(self.blocks(self.stem(x)).mean((2, 3)))


class FakeQuant:
    """Context manager: inside it all conv outputs are rounded to `levels` steps."""

    def __init__(self, model, levels=4):
        self.model, self.levels = model, levels
        self.handles = []

    def _quantise(self, module, args, output):
        scale = output.detach().abs().max() / self.levels
        return (output / scale).round() * scale

    def __enter__(self):
        for m in self.model.modules():
            if isinstance(m, nn.Conv2d):
                self.handles.append(m.register_forward_hook(self._quantise))
        return self

    def __exit__(self, *exc):
        for handle in self.handles:
            handle.remove()
            self.handles.remove(handle)


def train(model, x, y, epochs):
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(epochs):
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


x = torch.randn(64, 1, 6, 6)
y = (x[:, 0, :3].mean((1, 2)) > x[:, 0, 3:].mean((1, 2))).long()
model = Net()
print(f"float training      loss {train(model, x, y, 15):.4f}")
with torch.no_grad():
    full = model(x)
    with FakeQuant(model):
        quant = model(x)
    again = model(x)
print(f"quantisation error  {(quant - full).abs().mean().item():.4f}")
print(f"float again         difference {(again - full).abs().mean().item():.4f}")
stem_before = model.stem.weight.detach().clone()
print(f"continued training  loss {train(model, x, y, 15):.4f}")
print("stem was trained further:", not torch.equal(stem_before, model.stem.weight))
