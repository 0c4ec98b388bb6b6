"""Dense prediction from tapped encoder features, with an exponential moving average of the weights."""
import copy
from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(11)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1 = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU())
        self.down2 = nn.Sequential(nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU())

    def forward(self, x):
        return self.down2(self.down1(x))


class DepthNet(nn.Module):
    """The decoder reads what the hooks took from the encoder."""

    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.taps = {}
        for name in ("down1", "down2"):
            layer = getattr(self.encoder, name)
            layer.register_forward_hook(partial(self._tap, name))
        self.lat1, self.lat2 = nn.Conv2d(8, 8, 1), nn.Conv2d(16, 8, 1)
        self.out = nn.Conv2d(8, 1, 3, padding=1)

    def _tap(self, name, module, args, out):
        self.taps[name] = out

    def forward(self, x):
        self.encoder(x)
        p = self.lat1(self.taps["down1"])
        p = p + F.interpolate(self.lat2(self.taps["down2"]), scale_factor=2)
        return F.interpolate(self.out(F.relu(p)), scale_factor=2)


@torch.no_grad()
def ema_update(ema, model, decay=0.8):
    for e, p in zip(ema.parameters(), model.parameters()):
        e.lerp_(p, 1 - decay)


def sample(n=4):
    x = torch.rand(n, 1, 1, 1) * torch.ones(n, 1, 16, 16) + 0.1 * torch.randn(n, 1, 16, 16)
    return x, 2 * F.avg_pool2d(x, 3, 1, 1)


model = DepthNet()
with torch.no_grad():
    print("output", tuple(model(sample()[0]).shape))
ema = copy.deepcopy(model)

opt = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(40):
    x, y = sample()
    loss = F.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    ema_update(ema, model)

model.eval()
ema.eval()
dark, bright = torch.full((4, 1, 16, 16), 0.1), torch.full((4, 1, 16, 16), 0.9)
with torch.no_grad():
    for tag, net in (("raw", model), ("ema", ema)):
        gap = (net(bright) - net(dark)).mean().item()
        err = F.mse_loss(net(bright), 2 * bright).item()
        print(f"{tag}: bright-dark gap {gap:.3f} mse on bright {err:.3f}")
