"""Collect features of a few layers with hooks, remove the hooks and go on training without them."""
import functools
import torch
import torch.nn as nn
import torch.nn.functional as F


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.block1 = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.block2 = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True))
        self.fc = nn.Linear(16, 3)

    def forward(self, x):
        x = F.max_pool2d(self.block1(x), 2)
        return self.fc(self.block2(x).mean((2, 3)))


def save(store, name, module, args, output):
    # output of the whole block: the in-place ReLU is its last operation, nothing changes it afterwards
    store[name].append(output.mean((2, 3)).detach())


def extract(model, images, names):
    store = {name: [] for name in names}
    handles = []
    for name, module in model.named_modules():
        if name in names:
            handles.append(module.register_forward_hook(functools.partial(save, store, name)))
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            for batch in images.split(32):
                model(batch)
    finally:
        for h in handles:
            h.remove()
        model.train(was_training)
    return {name: torch.cat(chunks) for name, chunks in store.items()}


def nearest_centroid_accuracy(feats, y):
    centers = torch.stack([feats[y == c].mean(0) for c in range(3)])
    return (torch.cdist(feats, centers).argmin(1) == y).float().mean().item()


def main():
    torch.manual_seed(0)
    x = torch.randn(192, 1, 8, 8)
    y = torch.arange(192) % 3
    for c in range(3):
        x[y == c, 0, 2 * c:2 * c + 3] += 1.2
    model = ConvNet()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for phase in range(3):
        feats = extract(model, x, ["block1", "block2"])
        print(f"phase {phase}:", {n: (tuple(f.shape), round(nearest_centroid_accuracy(f, y), 3)) for n, f in feats.items()})
        for _ in range(10):
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"  loss {loss.item():.4f}, hooks left on block1: {len(model.block1._forward_hooks)}")


if __name__ == "__main__":
    main()
