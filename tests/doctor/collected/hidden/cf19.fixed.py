"""Multiply-accumulate counter for a hybrid conv/transformer model."""
from collections import Counter

import torch
import torch.nn as nn
from torch.nn.modules.module import register_module_forward_hook

torch.manual_seed(18)


class Hybrid(nn.Module):
    def __init__(self, dim=32, depth=2, classes=10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, dim, 3, 2, 1))
        layer = nn.TransformerEncoderLayer(dim, 4, 64, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, depth)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        return self.head(self.encoder(x).mean(1))


class MacCounter:
    """Counts with one hook for every module of the process, so no layer is forgotten."""

    def __init__(self):
        self.macs, self.calls = Counter(), Counter()

    def __enter__(self):
        self.handle = register_module_forward_hook(self.count)
        return self

    def __exit__(self, *exc):
        self.handle.remove()

    def count(self, module, args, output):
        kind = type(module).__name__
        if isinstance(module, nn.Conv2d):
            per_pixel = module.weight[0].numel()
            self.macs[kind] += output.numel() * per_pixel
        elif isinstance(module, nn.Linear):
            self.macs[kind] += output.numel() * module.in_features
        elif isinstance(module, nn.MultiheadAttention):
            q = args[0]
            n, d = q.shape[1], q.shape[2]
            self.macs[kind] += q.shape[0] * (4 * n * d * d + 2 * n * n * d)
        else:
            return
        self.calls[kind] += 1


def profile(model, size):
    model.eval()
    torch.backends.mha.set_fastpath_enabled(False)
    with torch.no_grad(), MacCounter() as counter:
        model(torch.randn(1, 3, size, size))
    return counter


model = Hybrid()
params = sum(p.numel() for p in model.parameters())
print(f"parameters {params}")
for size in (16, 32):
    c = profile(model, size)
    for kind in ("Conv2d", "Linear", "MultiheadAttention"):
        print(f"{size}px {kind}: calls {c.calls[kind]} MACs {c.macs[kind]}")
    print(f"{size}px total {sum(c.macs.values()) / 1e6:.3f} M")
