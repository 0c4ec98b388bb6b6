"""Save a steered model as a whole and take it up again for serving."""
import os
import tempfile

import torch
from torch import nn

torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ff = nn.Linear(dim, dim)

    def forward(self, x):
        return x + torch.tanh(self.ff(x))


class Tower(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.blocks = nn.Sequential(*[Block(dim) for _ in range(3)])
        self.readout = nn.Linear(dim, 1)
        self.register_buffer("direction", nn.functional.normalize(torch.randn(dim), dim=0))

    def forward(self, x):
        return self.readout(self.blocks(x))


class Steer:
    """Add a multiple of a direction to the output of a block."""

    def __init__(self, direction, strength):
        self.direction = direction
        self.strength = strength

    def __call__(self, module, args, out):
        return out + self.strength * self.direction


def enable_steering(model, strength=2.0):
    return model.blocks[1].register_forward_hook(Steer(model.direction, strength))


def push(model, x, reference):
    """How far the steered residual stream is from the unsteered one."""
    with torch.no_grad():
        return (model.blocks[:2](x) - reference).norm(dim=1).mean().item()


def main():
    torch.manual_seed(0)
    model = Tower().eval()
    x = torch.randn(10, 16)
    with torch.no_grad():
        plain = model.blocks[:2](x)

    enable_steering(model)
    print(f"tuning session: push {push(model, x, plain):.2f}")

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tower.pt")
        torch.save(model, path)
        served = torch.load(path, weights_only=False)

    # hooks are code, not weights: the serving process has to set them up itself
    enable_steering(served)
    print(f"serving process: push {push(served, x, plain):.2f}")
    with torch.no_grad():
        print(f"mean output change {(served(x) - model(x)).abs().mean().item():.4f}")


if __name__ == "__main__":
    main()
