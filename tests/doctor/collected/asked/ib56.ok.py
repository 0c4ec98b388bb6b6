"""Data-dependent initialisation: every layer rescales itself on the first batch it sees."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)


class DeepMLP(nn.Module):
    def __init__(self, inputs=16, hidden=40, depth=8):
        super().__init__()
        widths = [inputs] + [hidden] * depth
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        for layer in self.layers:
            x = F.relu(layer(x))
        return self.out(x).squeeze(-1)


def poor_start(model):
    for layer in model.layers:
        nn.init.normal_(layer.weight, std=0.05)
        nn.init.zeros_(layer.bias)
    return model


class DataDependentInit:
    """One-shot forward hooks: centre and scale a layer's output, then step aside."""

    def __init__(self, target_std=1.0):
        self.target_std = target_std
        self.handles = {}

    def attach(self, layers):
        for layer in layers:
            self.handles[layer] = layer.register_forward_hook(self._calibrate)
        return self

    @torch.no_grad()
    def _calibrate(self, layer, args, output):
        mean = output.mean(dim=0)
        scale = self.target_std / (output.std(dim=0) + 1e-8)
        layer.weight.mul_(scale[:, None])
        layer.bias.sub_(mean).mul_(scale)
        self.handles.pop(layer).remove()
        return F.linear(args[0], layer.weight, layer.bias)


def make_batches(count, size=64):
    truth = torch.randn(16, generator=torch.Generator().manual_seed(12))
    for _ in range(count):
        x = torch.randn(size, 16)
        yield x, torch.tanh(x @ truth)


def train(model, steps=200):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for x, y in make_batches(steps):
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[:10]) / 10, sum(losses[-10:]) / 10


@torch.no_grad()
def output_scale(model, x):
    stds = []
    for layer in model.layers:
        x = layer(x)
        stds.append(x.std(dim=0).mean().item())
        x = F.relu(x)
    return stds


def main():
    probe = torch.randn(256, 16)
    for name in ("plain", "data-dependent"):
        torch.manual_seed(3)
        model = poor_start(DeepMLP())
        if name == "data-dependent":
            init = DataDependentInit().attach(model.layers)
            with torch.no_grad():
                model(torch.randn(512, 16))
            print(f"layers still waiting for data: {len(init.handles)}")
        stds = output_scale(model, probe)
        first, last = train(model)
        print(
            f"{name}: output std first layer {stds[0]:.3f}, last layer {stds[-1]:.2e}; "
            f"loss {first:.3f} -> {last:.3f}"
        )


if __name__ == "__main__":
    main()
