"""Find the block with the weakest gradient signal and list it for pruning."""
import torch
from torch import nn


class ResidualMLP(nn.Module):
    def __init__(self, dim=16, depth=5):
        super().__init__()
        self.stem = nn.Linear(8, dim)
        self.blocks = nn.ModuleDict({f"block{i}": self._block(dim, i) for i in range(depth)})
        self.head = nn.Linear(dim, 3)

    @staticmethod
    def _block(dim, index):
        layer = nn.Linear(dim, dim * (index + 1))
        return nn.Sequential(layer, nn.Tanh(), nn.Linear(dim * (index + 1), dim))

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks.values():
            x = torch.tanh(block(x))
        return self.head(x)


class GradientProfile:
    """Context manager that collects one gradient norm per block."""

    def __init__(self, model):
        self.model = model
        self.norms = []
        self.handles = []

    def __enter__(self):
        for block in self.model.blocks.values():
            self.handles.append(block.register_full_backward_hook(self._collect))
        return self

    def __exit__(self, *exc):
        while self.handles:
            self.handles.pop().remove()

    def _collect(self, module, grad_input, grad_output):
        self.norms.append(grad_output[0].norm().item())

    def by_block(self):
        return dict(zip(self.model.blocks, self.norms))


def main():
    torch.manual_seed(0)
    model = ResidualMLP()
    x, y = torch.randn(64, 8), torch.randint(3, (64,))
    with GradientProfile(model) as profile:
        nn.functional.cross_entropy(model(x), y).backward()
    table = profile.by_block()
    for name, norm in table.items():
        print(f"{name}: gradient {norm:.5f}, first weight gradient {model.blocks[name][0].weight.grad.norm():.5f}")
    weakest = min(table, key=table.get)
    print("weakest gradient signal:", weakest)


if __name__ == "__main__":
    main()
