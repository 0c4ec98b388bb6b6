"""Sparsity inside and behind residual blocks whose two activations share one ReLU module."""
import torch
import torch.nn as nn

torch.manual_seed(2)


class BasicBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)
        self.conv2, self.bn2 = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)
        self.relu = nn.ReLU()

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return self.relu(y + x)


class ResNet(nn.Module):
    def __init__(self, c=8, classes=4):
        super().__init__()
        self.stem = nn.Conv2d(3, c, 3, 2, 1)
        self.layer1 = nn.Sequential(BasicBlock(c), BasicBlock(c))
        self.fc = nn.Linear(c, classes)

    def forward(self, x):
        return self.fc(self.layer1(self.stem(x)).mean((2, 3)))


class SharedReLU:
    """One list per block and forward pass: first entry inside the block, second entry its output."""

    def __init__(self, model):
        self.calls = {}
        self.handles = [model.register_forward_pre_hook(self.start)]
        for name, m in model.named_modules():
            if isinstance(m, BasicBlock):
                self.handles.append(m.relu.register_forward_hook(self.collect(name)))

    def start(self, module, args):
        self.calls.clear()  # a new forward pass of the whole model

    def collect(self, name):
        def hook(module, args, out):
            self.calls.setdefault(name, []).append((out == 0).float().mean().item())

        return hook

    def close(self):
        for h in self.handles:
            h.remove()


model = ResNet().eval()
with torch.no_grad():
    for m in model.modules():
        if isinstance(m, BasicBlock):
            m.bn1.bias.fill_(-0.5)
probe = SharedReLU(model)
with torch.no_grad():
    for i in range(3):
        model(torch.randn(4, 3, 16, 16))
        for name, values in probe.calls.items():
            inside, behind = values
            print(f"batch {i} {name}: zeros inside {inside:.3f} behind {behind:.3f}")
probe.close()
assert {k: len(v) for k, v in probe.calls.items()} == {"layer1.0": 2, "layer1.1": 2}
print("blocks", len(probe.calls))
