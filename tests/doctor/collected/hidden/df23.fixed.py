"""Estimate the damage of 4-bit activations, then go on with the float model."""
import torch
from torch import nn

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self, dim=20, depth=5):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        self.out = nn.Linear(dim, 3)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.out(x)


class FakeQuant:
    """Rounds the outputs of some layers to a grid while it is installed."""

    def __init__(self, bits):
        self.levels = 2 ** (bits - 1) - 1
        self.handles = []

    def install(self, layers):
        for layer in layers:
            self.handles.append(layer.register_forward_hook(self.round))

    def round(self, module, args, out):
        scale = out.abs().max() / self.levels
        return (out / scale).round() * scale

    def uninstall(self):
        for handle in list(self.handles):
            handle.remove()
            self.handles.remove(handle)       # forget it as well


def distance(a, b):
    return (a - b).abs().mean().item()


def main():
    torch.manual_seed(0)
    model = Net().eval()
    x = torch.randn(50, 20)
    with torch.no_grad():
        reference = model(x)

        quant = FakeQuant(bits=4)
        quant.install(model.layers)
        print(f"4 bit activations: mean change {distance(model(x), reference):.4f}")
        quant.uninstall()

        again = model(x)
        print(f"float model again: mean change {distance(again, reference):.4f}")

        # the same for 8 bits, starting from a clean model
        quant8 = FakeQuant(bits=8)
        quant8.install(model.layers)
        print(f"8 bit activations: mean change {distance(model(x), reference):.4f}")
        quant8.uninstall()
        print(f"float model at the end: mean change {distance(model(x), reference):.4f}")


if __name__ == "__main__":
    main()
