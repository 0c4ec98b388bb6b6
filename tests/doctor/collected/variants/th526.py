"""Residual adapters: watch how strongly each adapter contributes while it is trained."""
import torch
from torch import nn


class RunningMean:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value):
        self.total += value
        self.count += 1
        return self.total / self.count


class AdaptedLayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.base = nn.Linear(dim, dim).requires_grad_(False)
        self.adapter = nn.Sequential(nn.Linear(dim, 4), nn.ReLU(), nn.Linear(4, dim))

    def forward(self, x):
        x = torch.tanh(self.base(x))
        return x + self.adapter(x)


class Model(nn.Module):
    def __init__(self, dim=12, depth=2):
        super().__init__()
        self.layers = nn.ModuleList(AdaptedLayer(dim) for _ in range(depth))
        self.head = nn.Linear(dim, 1)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x).squeeze(-1)


def watch_adapters(model):
    meters = {}
    for index, layer in enumerate(model.layers):
        meter = meters[f"adapter{index}"] = RunningMean()
        layer.adapter.register_forward_hook(
            lambda module, args, out, meter=meter: meter.update(out.detach().norm(dim=-1).mean().item())
        )
    return meters


def main():
    torch.manual_seed(0)
    model = Model()
    meters = watch_adapters(model)
    start = {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for step in range(50):
        x = torch.randn(64, 12)
        loss = nn.functional.mse_loss(model(x), x[:, 0].abs())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}", {name: round(m.total / m.count, 3) for name, m in meters.items()})
    current = dict(model.named_parameters())
    for name, old in start.items():
        print(f"{name:28s} changed {(current[name] - old).abs().max().item():.4f}")


if __name__ == "__main__":
    main()
