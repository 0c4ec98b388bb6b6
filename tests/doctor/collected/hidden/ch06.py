"""Graph edit with torch.fx: input normalisation is carried over, layer calls are counted over both nets."""
from collections import Counter

import torch
import torch.fx as fx
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(5)


class Net(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, 2, 1)
        self.conv2 = nn.Conv2d(8, 8, 3, 2, 1)
        self.fc = nn.Linear(8, classes)

    def forward(self, x):
        x = F.relu6(self.conv1(x))
        x = F.relu6(self.conv2(x))
        return self.fc(x.mean((2, 3)))


def normalise(module, args):
    return ((args[0] - 0.45) / 0.22,)


def edit(model):
    gm = fx.symbolic_trace(model)
    for node in list(gm.graph.nodes):
        if node.target is F.relu6:
            with gm.graph.inserting_after(node):
                new = gm.graph.call_function(torch.clamp, (node.args[0], 0.0, 6.0))
            node.replace_all_uses_with(new)
            gm.graph.erase_node(node)
    gm.recompile()
    # symbolic_trace starts at forward(): hooks of the root have to be put on the new root
    for hook in model._forward_pre_hooks.values():
        gm.register_forward_pre_hook(hook)
    return gm


model = Net().eval()
model.register_forward_pre_hook(normalise)
gm = edit(model)

# the two networks share their layers; one hook therefore counts the work of both
calls = Counter()
for name, layer in model.named_children():
    layer.register_forward_hook(lambda m, a, o, name=name: calls.update([name]))

x = torch.rand(32, 3, 16, 16)
with torch.no_grad():
    a, b = model(x), gm(x)
print(f"largest difference {(a - b).abs().max().item():.6f}")
print("agreement", (a.argmax(1) == b.argmax(1)).float().mean().item())
print("calls per layer over both networks", dict(calls))
assert all(v == 2 for v in calls.values())
