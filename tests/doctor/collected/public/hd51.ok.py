"""Network with built-in range tracking for later 8 bit export; saved and resumed as a whole."""
import os
import tempfile
from functools import partial

import torch
from torch import nn
import torch.nn.functional as F


class TrackedNet(nn.Module):
    """Every linear layer reports the range of its outputs; ranges travel with the model."""

    def __init__(self, inputs=10, width=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
        )
        self.ranges = {}
        for name, layer in self.net.named_children():
            if isinstance(layer, nn.Linear):
                self.ranges[name] = [float("inf"), float("-inf"), 0]
                layer.register_forward_hook(partial(self._track, name))

    def _track(self, name, layer, inputs, output):
        if not self.training:
            return
        low, high, seen = self.ranges[name]
        values = output.detach()
        self.ranges[name] = [
            min(low, values.min().item()), max(high, values.max().item()), seen + len(values)
        ]

    def forward(self, x):
        return self.net(x).squeeze(-1)


def make_data(count, scale=1.0):
    x = scale * torch.randn(count, 10)
    return x, torch.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2]


def fit(model, x, y, epochs, batch_size=64):
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(batch_size):
            loss = F.mse_loss(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    return F.mse_loss(model(x), y).item()


def report(title, model, error):
    print(f"{title}: test mse {error:.4f}")
    for name, (low, high, seen) in model.ranges.items():
        print(f"  layer {name}: {low:+.2f} to {high:+.2f} in {seen} samples")


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x, y = make_data(1000)
    test_x, test_y = make_data(300)

    model = TrackedNet()
    fit(model, x, y, epochs=3)
    report("first run", model, evaluate(model, test_x, test_y))

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tracked.pt")
        torch.save(model, path)
        resumed = torch.load(path, weights_only=False)

    wide_x, wide_y = make_data(500, scale=2.0)
    fit(resumed, wide_x, wide_y, epochs=2)
    report("resumed on wider data", resumed, evaluate(resumed, test_x, test_y))
    report("model of the first run", model, evaluate(model, test_x, test_y))


if __name__ == "__main__":
    main()
