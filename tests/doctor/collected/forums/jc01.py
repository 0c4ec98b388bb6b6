"""How much does every residual block amplify or damp the gradient during training?"""
from collections import defaultdict

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(11)


class ResidualBlock(nn.Module):
    def __init__(self, width, scale):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.scale = scale

    def forward(self, x):
        h = self.down(torch.tanh(self.up(self.norm(x))))
        return x + self.scale * h


class TabularNet(nn.Module):
    def __init__(self, in_features=12, width=32, depth=4, classes=3):
        super().__init__()
        self.stem = nn.Linear(in_features, width)
        self.blocks = nn.ModuleList(ResidualBlock(width, scale=1.5) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class GradientGain:
    """Keeps |grad wrt block input| / |grad wrt block output| for every block."""

    def __init__(self, model):
        self.gains = defaultdict(list)
        self.handles = []
        for index, block in enumerate(model.blocks):
            self.handles.append(block.register_backward_hook(self.make_hook(index)))

    def make_hook(self, index):
        def hook(module, grad_input, grad_output):
            ratio = grad_input[0].norm() / grad_output[0].norm()
            self.gains[index].append(ratio.item())
        return hook

    def summary(self):
        return [sum(v) / len(v) for _, v in sorted(self.gains.items())]

    def close(self):
        for handle in self.handles:
            handle.remove()
        self.handles.clear()


def make_data(n=384):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(n, 12, generator=generator)
    target = (x[:, :3] + 0.5 * x[:, 3:6] * x[:, 6:9]).argmax(dim=1)
    return x, target


def train(model, x, y, epochs=4, batch_size=64):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        order = torch.randperm(len(x))
        total = 0.0
        for chunk in order.split(batch_size):
            optimizer.zero_grad()
            loss = criterion(model(x[chunk]), y[chunk])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(chunk)
        print(f"epoch {epoch + 1}: loss {total / len(x):.4f}")


def main():
    x, y = make_data()
    model = TabularNet()
    gain = GradientGain(model)
    train(model, x, y)
    gain.close()
    values = gain.summary()
    for index, value in enumerate(values):
        print(f"block {index}: mean gradient gain {value:.4f}")
    product = torch.tensor(values).prod().item()
    print(f"gain from head to stem: {product:.4f}")


if __name__ == "__main__":
    main()
