"""Statistics of pre-activations in a small ResNet, to look for dead channels."""
from contextlib import contextmanager

import torch
from torch import nn


class BasicBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv_out = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        return x + self.conv_out(self.relu(self.bn(self.conv(x))))


class MiniResNet(nn.Module):
    def __init__(self, channels=8, depth=3):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.layers = nn.ModuleList(BasicBlock(channels) for _ in range(depth))
        self.fc = nn.Linear(channels, 4)

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return self.fc(x.mean(dim=(2, 3)))


class PreActivations:
    def __init__(self):
        self.values = {}

    def hook(self, name):
        def keep(module, args, output):
            self.values[name] = output.detach()

        return keep


@contextmanager
def capture_preactivations(model):
    store = PreActivations()
    handles = []
    for name, module in model.named_modules():
        if isinstance(module, nn.BatchNorm2d):
            handles.append(module.register_forward_hook(store.hook(name)))
    try:
        yield store.values
    finally:
        for handle in handles:
            handle.remove()


if __name__ == "__main__":
    torch.manual_seed(0)
    model = MiniResNet()
    with capture_preactivations(model) as values:
        loss = nn.functional.cross_entropy(model(torch.randn(8, 3, 10, 10)), torch.randint(4, (8,)))
        loss.backward()
    for name, value in values.items():
        negative = (value < 0).float().mean().item()
        print(f"{name}: mean {value.mean().item():.3f} min {value.min().item():.3f} negative {negative:.1%}")
