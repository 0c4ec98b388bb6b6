"""How much does each residual block amplify the gradient? (signal propagation report)"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(21)
torch.set_num_threads(1)


class ResidualBlock(nn.Module):
    def __init__(self, dim, scale):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)
        nn.init.normal_(self.down.weight, std=scale / math.sqrt(2 * dim))

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class ResidualMLP(nn.Module):
    def __init__(self, inputs=10, dim=32, depth=5, classes=3):
        super().__init__()
        self.embed = nn.Linear(inputs, dim)
        self.blocks = nn.ModuleList([ResidualBlock(dim, scale=1.0 + i) for i in range(depth)])
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class GradientFlow:
    def __init__(self, model):
        self.gains = {}
        self.handles = []
        for index, block in enumerate(model.blocks):
            hook = self.make_hook(f"block{index}")
            self.handles.append(block.register_full_backward_hook(hook))

    def make_hook(self, name):
        def hook(module, grad_input, grad_output):
            gain = grad_input[0].norm() / grad_output[0].norm()
            self.gains.setdefault(name, []).append(gain.item())
        return hook

    def table(self):
        return {name: sum(values) / len(values) for name, values in self.gains.items()}

    def close(self):
        for handle in self.handles:
            handle.remove()


def batches(count, size=64):
    generator = torch.Generator().manual_seed(8)
    centers = torch.randn(3, 10, generator=generator) * 1.5
    for _ in range(count):
        labels = torch.randint(0, 3, (size,), generator=generator)
        yield centers[labels] + torch.randn(size, 10, generator=generator), labels


def main():
    model = ResidualMLP()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    flow = GradientFlow(model)
    for inputs, labels in batches(20):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
    flow.close()

    print(f"loss {loss.item():.3f}")
    gains = flow.table()
    for index in range(len(model.blocks)):
        gain = gains[f"block{index}"]
        print(f"block{index}: gradient at its input is {gain:.3f} times the gradient at its output")
    total = math.prod(gains.values())
    print(f"amplification over all blocks {total:.3f}")


if __name__ == "__main__":
    main()
