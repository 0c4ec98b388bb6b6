"""Swap activations with torch.fx and check that the edited network still agrees with the original."""
import torch
import torch.fx as fx
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(12)

MEAN = torch.tensor([0.48, 0.45, 0.40]).view(1, 3, 1, 1)
STD = torch.tensor([0.22, 0.22, 0.22]).view(1, 3, 1, 1)


class InvertedResidual(nn.Module):
    def __init__(self, c, expand=2):
        super().__init__()
        self.pw = nn.Conv2d(c, c * expand, 1)
        self.dw = nn.Conv2d(c * expand, c * expand, 3, padding=1, groups=c * expand)
        self.pwl = nn.Conv2d(c * expand, c, 1)

    def forward(self, x):
        y = F.relu6(self.pw(x))
        y = F.relu6(self.dw(y))
        return x + self.pwl(y)


class MobileNet(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 3, 2, 1)
        self.blocks = nn.Sequential(InvertedResidual(12), InvertedResidual(12))
        self.head = nn.Linear(12, classes)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def normalise(module, args):
    """Images arrive in [0, 1]; the network was trained on standardised input."""
    (x,) = args
    return ((x - MEAN) / STD,)


def relu6_to_clamp(gm):
    """relu6 is missing on the target; clamp(0, 6) computes the same."""
    for node in list(gm.graph.nodes):
        if node.op == "call_function" and node.target is F.relu6:
            with gm.graph.inserting_after(node):
                new = gm.graph.call_function(torch.clamp, (node.args[0], 0.0, 6.0))
            node.replace_all_uses_with(new)
            gm.graph.erase_node(node)
    gm.recompile()
    return gm


model = MobileNet().eval()
model.register_forward_pre_hook(normalise)

gm = relu6_to_clamp(fx.symbolic_trace(model))
print("clamp nodes:", sum(n.target is torch.clamp for n in gm.graph.nodes))

images = torch.rand(64, 3, 16, 16)
with torch.no_grad():
    a, b = model(images), gm(images)
print(f"top-1 agreement {(a.argmax(1) == b.argmax(1)).float().mean().item():.2f}")
print(f"max logit difference {(a - b).abs().max().item():.4f}")
