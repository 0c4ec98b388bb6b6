"""Adapters attached by hooks to a checkpointed, frozen encoder."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
torch.set_num_threads(1)


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        return x + self.ff(self.norm(x))


class Encoder(nn.Module):
    def __init__(self, dim=24, depth=4):
        super().__init__()
        self.layers = nn.ModuleList(Layer(dim) for _ in range(depth))
        self.checkpointing = False

    def forward(self, x):
        for layer in self.layers:
            if self.checkpointing and torch.is_grad_enabled():
                x = checkpoint(layer, x, use_reentrant=False)
            else:
                x = layer(x)
        return x.mean(dim=1)


class Adapter(nn.Module):
    def __init__(self, dim, rank=4):
        super().__init__()
        self.down = nn.Linear(dim, rank)
        self.up = nn.Linear(rank, dim)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x):
        return self.up(torch.tanh(self.down(x)))


class AdaptedEncoder(nn.Module):
    def __init__(self, encoder, dim=24, classes=3):
        super().__init__()
        self.encoder = encoder.requires_grad_(False)
        self.adapters = nn.ModuleList(Adapter(dim) for _ in encoder.layers)
        self.head = nn.Linear(dim, classes)
        for layer, adapter in zip(encoder.layers, self.adapters):
            layer.ff.register_forward_hook(self.with_adapter(adapter))

    @staticmethod
    def with_adapter(adapter):
        def hook(module, args, output):
            return output + adapter(args[0])
        return hook

    def forward(self, x):
        return self.head(self.encoder(x))


def gradients(model, x, y, checkpointing):
    model.encoder.checkpointing = checkpointing
    model.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad])


def main():
    model = AdaptedEncoder(Encoder())
    centers = torch.randn(3, 24)
    y = torch.randint(0, 3, (96,))
    x = centers[y][:, None] + 2 * torch.randn(96, 6, 24)
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=1e-2)
    for step in range(20):
        gradients(model, x, y, checkpointing=True)
        optimizer.step()
    plain = gradients(model, x, y, checkpointing=False)
    saved = gradients(model, x, y, checkpointing=True)
    with torch.no_grad():
        accuracy = (model(x).argmax(dim=1) == y).float().mean().item()
    print(f"accuracy {accuracy:.3f}")
    print(f"gradient difference with checkpointing: {(plain - saved).abs().max():.6f}")


if __name__ == "__main__":
    main()
