"""Activation patching: which MLP output carries the information that a corrupted input has lost?"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, dim=16, depth=4):
        super().__init__()
        self.embed = nn.Linear(6, dim)
        self.layers = nn.ModuleList(Layer(dim) for _ in range(depth))
        self.out = nn.Linear(dim, 2)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


def record(model, cache):
    for i, layer in enumerate(model.layers):
        def hook(module, args, output, i=i):
            cache[i] = output.detach().clone()
        layer.down.register_forward_hook(hook)


def patch(model, cache, i):
    def hook(module, args, output):
        return cache[i]
    return model.layers[i].down.register_forward_hook(hook)


@torch.no_grad()
def logit_diff(model, x, y):
    out = model(x)
    return (out.gather(1, y[:, None]) - out.gather(1, 1 - y[:, None])).mean().item()


def main():
    torch.manual_seed(0)
    clean = torch.randn(256, 6)
    y = (clean[:, 0] + clean[:, 1] > 0).long()
    model = Model()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(60):
        loss = F.cross_entropy(model(clean), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    corrupted = clean.clone()
    corrupted[:, :2] = torch.randn(256, 2)

    cache = {}
    record(model, cache)
    good = logit_diff(model, clean, y)  # fills the cache with the clean run
    clean_cache = cache
    bad = logit_diff(model, corrupted, y)
    print(f"logit difference clean {good:.3f} corrupted {bad:.3f}")
    for i in range(len(model.layers)):
        handle = patch(model, clean_cache, i)
        value = logit_diff(model, corrupted, y)
        handle.remove()
        print(f"  patch layer {i}: restored {100 * (value - bad) / (good - bad):6.1f}%")


if __name__ == "__main__":
    main()
