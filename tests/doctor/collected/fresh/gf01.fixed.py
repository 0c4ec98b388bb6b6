"""Train a small compiled CNN, then look at which channels of the last block are active on held-out images."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, 3, padding=1)
        self.norm = nn.BatchNorm2d(c_out)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))


class SmallCNN(nn.Module):
    def __init__(self, n_classes=3):
        super().__init__()
        self.block1 = Block(1, 6)
        self.block2 = Block(6, 8)
        self.head = nn.Linear(8, n_classes)

    def forward(self, x):
        x = self.block2(F.max_pool2d(self.block1(x), 2))
        return self.head(x.mean((2, 3)))


def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (n,), generator=g)
    x = torch.randn(n, 1, 8, 8, generator=g) * 0.3
    for i, label in enumerate(y.tolist()):
        x[i, 0, label * 2: label * 2 + 2] += 1.0
    return x, y


@torch.no_grad()
def accuracy(model, images, labels):
    model.eval()
    hits = [(model(xb).argmax(1) == yb).sum() for xb, yb in zip(images.split(16), labels.split(16))]
    return (sum(hits) / len(labels)).item()


def channel_activity(model, layer, images):
    """Mean activation per channel of `layer`, collected over all batches."""
    sums, n_seen = torch.zeros(8), 0

    def collect(module, args, output):
        nonlocal n_seen
        sums.add_(output.detach().mean((2, 3)).sum(0))
        n_seen += output.shape[0]

    model.eval()
    handle = layer.register_forward_hook(collect)
    with torch.no_grad():
        for batch in images.split(16):
            model(batch)
    handle.remove()
    return sums / max(n_seen, 1), n_seen


model = SmallCNN()
compiled = torch.compile(model, backend="eager")
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
x, y = make_data(64, seed=1)
for epoch in range(4):
    compiled.train()
    for xb, yb in zip(x.split(16), y.split(16)):
        loss = F.cross_entropy(compiled(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.3f} accuracy {accuracy(compiled, x, y):.2f}")

x_val, _ = make_data(48, seed=2)
activity, n = channel_activity(model, model.block2, x_val)
print("images seen:", n)
print("channel activity:", [round(v, 3) for v in activity.tolist()])
print("silent channels:", [c for c, v in enumerate(activity.tolist()) if v == 0.0])
