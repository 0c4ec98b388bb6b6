"""Deployment with torch.jit.trace: an output-limiting hook is baked in, shapes are printed while tracing."""
import io

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(14)


class DepthNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU())
        self.dec = nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, x):
        y = self.dec(self.enc(x))
        return F.interpolate(y, scale_factor=4.0)


def limit(module, args, out):
    """Depth is between 0.1 and 2; becomes part of the traced graph."""
    return out.clamp(0.1, 2.0)


shapes = []


def shape_log(name):
    def hook(module, args, out):
        # a protocol of the export, not of the deployed model
        shapes.append((name, [int(s) for s in out.shape]))

    return hook


model = DepthNet().eval()
with torch.no_grad():
    model.dec.bias.fill_(1.9)
    model.dec.weight.mul_(20)
model.register_forward_hook(limit)

example = torch.randn(1, 3, 16, 16)
handles = [model.enc.register_forward_hook(shape_log("enc")), model.dec.register_forward_hook(shape_log("dec"))]
traced = torch.jit.trace(model, example, check_trace=False)
for h in handles:
    h.remove()
protocol = list(shapes)

buffer = io.BytesIO()
torch.jit.save(traced, buffer)
buffer.seek(0)
deployed = torch.jit.load(buffer)

x = torch.randn(4, 3, 16, 16)
with torch.no_grad():
    raw = DepthNet.forward(model, x)  # forward without hooks, for comparison
    want, got = model(x), deployed(x)
print("export protocol", protocol)
print(f"raw range above limit: {raw.max().item() > 2.0}, deployed maximum {got.max().item():.3f} minimum {got.min().item():.3f}")
print("deployed equals eager:", torch.allclose(want, got))
print("protocol untouched by inference:", shapes == protocol)
assert got.max() <= 2.0 and got.min() >= 0.1 - 1e-6
