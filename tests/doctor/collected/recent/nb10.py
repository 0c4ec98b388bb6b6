"""A tiny feature-pyramid classifier; keeps one batch of maps per level for a figure.

While the network trains, the maps of the first batch at every pyramid level are kept
(detached) so that they can be compared with the maps at the end of training.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(10)
torch.set_num_threads(1)


def stage(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.GroupNorm(2, cout), nn.ReLU())


class Pyramid(nn.Module):
    def __init__(self, width=8, classes=4):
        super().__init__()
        self.c2 = stage(1, width)
        self.c3 = stage(width, width)
        self.lateral2 = nn.Conv2d(width, width, 1)
        self.lateral3 = nn.Conv2d(width, width, 1)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x):
        c2 = self.c2(x)
        c3 = self.c3(F.max_pool2d(c2, 2))
        p3 = self.lateral3(c3)
        p2 = self.lateral2(c2) + F.interpolate(p3, scale_factor=2)
        pooled = torch.cat([F.relu(p).mean((2, 3)) for p in (p2, p3)], 1)
        return self.head(pooled)


def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    waves = torch.stack([xx, yy, 0.7 * (xx + yy), 0.7 * (xx - yy)])
    y = torch.randint(0, 4, (n,), generator=g)
    phase = torch.rand(n, 1, 1, generator=g) * 6.28
    x = torch.sin(1.5 * waves[y] + phase) + 0.3 * torch.randn(n, 12, 12, generator=g)
    return x.unsqueeze(1), y


def keep_first_maps(model, names):
    first = {}
    for name in names:
        model.get_submodule(name).register_forward_hook(
            lambda module, args, output, name=name: first.setdefault(name, output.detach()))
    return first


@torch.no_grad()
def accuracy(model, x, y, batch=64):
    hits = 0
    for i in range(0, len(x), batch):
        hits += (model(x[i:i + batch]).argmax(1) == y[i:i + batch]).sum().item()
    return hits / len(x)


def main():
    x, y = make_data(512, seed=1)
    xt, yt = make_data(256, seed=2)
    model = Pyramid()
    first = keep_first_maps(model, ["lateral2", "lateral3"])

    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(8):
        order = torch.randperm(len(x))
        total = 0.0
        for i in range(0, len(x), 64):
            idx = order[i:i + 64]
            loss = F.cross_entropy(model(x[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / (len(x) // 64):.4f}")

    for name, maps in first.items():
        print(f"{name}: first maps {tuple(maps.shape)}, mean {maps.mean().item():+.4f}")
    print(f"test accuracy {accuracy(model, xt, yt):.3f}")


if __name__ == "__main__":
    main()
