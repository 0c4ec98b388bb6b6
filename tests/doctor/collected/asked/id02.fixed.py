import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Regressor(nn.Module):
    def __init__(self, n_features=16, dim=32, depth=3):
        super().__init__()
        self.embed = nn.Linear(n_features, dim)
        self.blocks = nn.ModuleList([Block(dim) for _ in range(depth)])
        self.head = nn.Linear(dim, 1)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x).squeeze(-1)


class ActivationTap:
    """Keeps the latest output of some layers."""

    def __init__(self):
        self.outputs = {}
        self.handles = []

    def attach(self, layers):
        for name, layer in layers.items():
            self.handles.append(layer.register_forward_hook(self._make_hook(name)))

    def _make_hook(self, name):
        def hook(module, args, output):
            self.outputs[name] = output.detach()

        return hook

    def close(self):
        for handle in self.handles:
            handle.remove()
        self.handles.clear()


def train(model, x, y, steps=20):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    x = torch.randn(128, 16)
    y = torch.sin(x[:, 0]) + 0.5 * x[:, 1]

    model = Regressor()
    compiled = torch.compile(model, backend="eager")
    tap = ActivationTap()
    layers = {f"block{i}": block for i, block in enumerate(model.blocks)}

    tap.attach(layers)
    loss = train(compiled, x, y)
    print(f"loss after warm-up {loss:.3f}")

    loss = train(compiled, x, y)
    print(f"loss after second phase {loss:.3f}")
    print(f"layers recorded: {len(tap.outputs)} of {len(layers)}")
    for name, output in sorted(tap.outputs.items()):
        print(f"  {name} rms {output.pow(2).mean().sqrt().item():.3f}")
    tap.close()


if __name__ == "__main__":
    main()
