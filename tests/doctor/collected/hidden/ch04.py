"""Build a classifier head from the measured feature size; read early features without the rest."""
import torch
import torch.nn as nn

torch.manual_seed(3)


class Reached(Exception):
    """Thrown by the hook to leave the forward pass early."""


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stage1 = nn.Sequential(nn.Conv2d(1, 6, 5, 2), nn.ReLU())
        self.stage2 = nn.Sequential(nn.Conv2d(6, 12, 3, 2), nn.ReLU())
        self.stage3 = nn.Sequential(nn.Conv2d(12, 20, 3, 2), nn.ReLU())
        self.pool = nn.Flatten()
        self.runs = 0

    def forward(self, x):
        x = self.stage2(self.stage1(x))
        self.runs += 1
        return self.pool(self.stage3(x))


def infer_width(model, size):
    """A hook that serves once: it notes the width and takes itself off."""
    box = {}

    def once(module, args, out):
        box["width"] = out.shape[1]
        handle.remove()

    handle = model.pool.register_forward_hook(once)
    with torch.no_grad():
        model(torch.zeros(1, 1, *size))
    return box["width"]


def early_features(model, layer, x):
    """Output of `layer`; nothing behind it is computed."""

    def stop(module, args, out):
        raise Reached(out)

    handle = layer.register_forward_hook(stop)
    try:
        model(x)
    except Reached as r:
        return r.args[0]
    finally:
        handle.remove()
    raise RuntimeError("layer was not part of the forward pass")


model = Backbone()
width = infer_width(model, (28, 28))
head = nn.Linear(width, 10)
x = torch.randn(5, 1, 28, 28)
with torch.no_grad():
    print("head", head.in_features, "logits", tuple(head(model(x)).shape))
    runs = model.runs
    early = early_features(model, model.stage1, x)
    print("early features", tuple(early.shape), "deep part executed again:", model.runs != runs)
    late = early_features(model, model.stage3, x)
    print("late features", tuple(late.shape))
print("hooks left:", sum(len(m._forward_hooks) for m in model.modules()))
assert torch.allclose(early, model.stage1(x))
