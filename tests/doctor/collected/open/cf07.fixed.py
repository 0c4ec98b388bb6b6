"""Wide-activation super resolution network with weight normalisation and a custom initialisation."""
import torch
import torch.nn as nn
from torch.nn.utils import weight_norm

torch.manual_seed(6)


class ResUnit(nn.Module):
    def __init__(self, c, expand=3):
        super().__init__()
        self.body = nn.Sequential(
            weight_norm(nn.Conv2d(c, c * expand, 3, padding=1)),
            nn.ReLU(),
            weight_norm(nn.Conv2d(c * expand, c, 3, padding=1)),
        )

    def forward(self, x):
        return x + self.body(x)


class SRNet(nn.Module):
    def __init__(self, c=8, blocks=3, scale=2):
        super().__init__()
        self.head = weight_norm(nn.Conv2d(1, c, 3, padding=1))
        self.body = nn.Sequential(*[ResUnit(c) for _ in range(blocks)])
        self.tail = nn.Sequential(weight_norm(nn.Conv2d(c, scale * scale, 3, padding=1)), nn.PixelShuffle(scale))

    def forward(self, x):
        return self.tail(self.body(self.head(x)))


def init_small(module, std=0.01):
    """Start residual branches close to zero, so that the network begins near the identity."""
    if isinstance(module, nn.Conv2d):
        module.weight_v.data.normal_(0.0, std)
        module.weight_g.data.copy_(module.weight_v.data.flatten(1).norm(dim=1).view(-1, 1, 1, 1))
        module.bias.data.zero_()


def data(n=8):
    hi = nn.functional.avg_pool2d(torch.randn(n, 1, 20, 20), 5, 1, 2)
    return nn.functional.avg_pool2d(hi, 2), hi


model = SRNet()
model.apply(init_small)

lo, hi = data()
with torch.no_grad():
    feats = model.head(lo)
    for i, unit in enumerate(model.body):
        branch = unit.body(feats)
        print(f"block {i}: branch/skip ratio {(branch.std() / feats.std()).item():.4f}")
        feats = unit(feats)
    print(f"weight std of the first branch {model.body[0].body[0].weight.std().item():.4f}")

opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(15):
    lo, hi = data()
    loss = nn.functional.l1_loss(model(lo), hi)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"l1 after 15 steps {loss.item():.4f}")
