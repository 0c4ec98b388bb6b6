"""How many units of every conv layer are below zero before the ReLU? (to choose a leaky slope)"""
import torch
import torch.nn as nn

torch.manual_seed(12)


class VGGLike(nn.Module):
    def __init__(self):
        super().__init__()
        layers, c_in = [], 1
        for c_out in (6, 8, 10):
            layers += [nn.Conv2d(c_in, c_out, 3, padding=1), nn.BatchNorm2d(c_out), nn.ReLU(inplace=True)]
            c_in = c_out
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1))
        self.classifier = nn.Linear(10, 3)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


class PreActivations:
    """Saves the outputs of all batch-norm layers, i.e. what goes into the ReLUs."""

    def __init__(self, model):
        self.model = model
        self.saved = {}

    def __enter__(self):
        self.handles = [
            m.register_forward_hook(self._saver(name))
            for name, m in self.model.named_modules()
            if isinstance(m, nn.BatchNorm2d)
        ]
        return self

    def _saver(self, name):
        def save(module, args, out):
            self.saved[name] = out.detach()
        return save

    def __exit__(self, *exc):
        for h in self.handles:
            h.remove()


def train(model, x, y):
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(12):
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"train loss {loss.item():.3f}")


x = torch.randn(48, 1, 8, 8)
y = (x.mean((1, 2, 3)) * 20).clamp(-1, 1).round().long() + 1
model = VGGLike()
train(model, x, y)

model.eval()
with torch.no_grad(), PreActivations(model) as pre:
    model(x)

for name, act in pre.saved.items():
    negative = (act < 0).float().mean().item()
    print(f"{name:12s} mean {act.mean().item():+.3f}  min {act.min().item():+.3f}  negative {negative:.2%}")
share = sum((a < 0).float().mean().item() for a in pre.saved.values()) / len(pre.saved)
print(f"average share below zero: {share:.2%}")
print("suggestion:", "leaky slope 0.1" if share > 0.3 else "keep ReLU")
