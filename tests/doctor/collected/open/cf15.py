"""Image retrieval with the pooled features of a traced network."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(14)


class Fire(nn.Module):
    def __init__(self, c_in, squeeze, expand):
        super().__init__()
        self.squeeze = nn.Conv2d(c_in, squeeze, 1)
        self.e1 = nn.Conv2d(squeeze, expand, 1)
        self.e3 = nn.Conv2d(squeeze, expand, 3, padding=1)

    def forward(self, x):
        x = F.relu(self.squeeze(x))
        return F.relu(torch.cat([self.e1(x), self.e3(x)], 1))


class SqueezeNet(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), Fire(8, 4, 8), nn.MaxPool2d(2), Fire(16, 6, 12))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(24, classes)

    def forward(self, x):
        return self.fc(self.pool(self.features(x)).flatten(1))


class Embedder:
    """Runs the (traced) classifier and hands out the pooled features instead of the logits."""

    def __init__(self, model, example):
        self.vector = None
        model.pool.register_forward_hook(self.keep)
        self.net = torch.jit.trace(model, example)

    def keep(self, module, args, out):
        self.vector = out.detach().flatten(1)

    def __call__(self, image):
        with torch.no_grad():
            self.net(image)
        return F.normalize(self.vector, dim=1)


def textures(n):
    base = torch.rand(n, 3, 1, 1)
    return base + 0.2 * torch.randn(n, 3, 24, 24)


model = SqueezeNet().eval()
gallery = textures(10)
embed = Embedder(model, gallery[:1])

index = torch.cat([embed(img[None]) for img in gallery])
queries = [(i, gallery[i] + 0.05 * torch.randn(3, 24, 24)) for i in (1, 4, 7, 9)]
hits = 0
for truth, img in queries:
    sims = (embed(img[None]) @ index.T)[0]
    found = sims.argmax().item()
    hits += found == truth
    print(f"query {truth}: found {found} similarity {sims.max().item():.4f}")
print(f"hits {hits} of {len(queries)}, spread of the index {index.std(0).mean().item():.5f}")
