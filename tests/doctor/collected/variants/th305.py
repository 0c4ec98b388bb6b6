"""Layer-wise learning-rate decay for fine-tuning: lower layers should move less than upper layers."""
import operator
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn


class Encoder(nn.Module):
    def __init__(self, dim=16, depth=4, classes=3):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU()) for _ in range(depth)
        )
        self.classifier = nn.Linear(dim, classes)

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return self.classifier(x)


def apply_layer_decay(model, decay):
    depth = len(model.layers)
    handles = {}
    for i, layer in enumerate(model.layers):
        rate = decay ** (depth - i)
        for name, p in layer.named_parameters():
            handles[f"layers.{i}.{name}"] = p.register_hook(partial(operator.mul, rate))
    return handles


class FineTuner:
    def __init__(self, model, lr=1e-3):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        self.start = [layer[1].weight.detach().clone() for layer in model.layers]

    def fit(self, x, y, steps):
        for _ in range(steps):
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(x), y)
            loss.backward()
            self.optimizer.step()
        return loss.item()

    def moved(self):
        return [(layer[1].weight - w).norm().item() for layer, w in zip(self.model.layers, self.start)]


def main():
    for decay in (1.0, 0.5):
        torch.manual_seed(0)
        model = Encoder()
        handles = apply_layer_decay(model, decay) if decay < 1 else {}
        tuner = FineTuner(model)
        x, y = torch.randn(48, 16), torch.randint(0, 3, (48,))
        loss = tuner.fit(x, y, steps=8)
        distances = " ".join(f"{d:.4f}" for d in tuner.moved())
        print(f"decay {decay}: {len(handles)} hooks, loss {loss:.4f}, layers moved by {distances}")


if __name__ == "__main__":
    main()
