"""Time and count every module's forward with hooks for the whole process, taken off after the training."""

from collections import Counter

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

depth, deepest, calls = [0], [0], Counter()


def enter(module, args):
    depth[0] += 1
    deepest[0] = max(deepest[0], depth[0])


def leave(module, args, output):
    depth[0] -= 1
    calls[type(module).__name__] += 1


handles = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave)]
try:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = nn.Sequential(nn.Embedding(20, 16), nn.TransformerEncoder(layer, 2), nn.Linear(16, 20))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(3):
        tokens = torch.randint(20, (4, 8))
        loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
finally:
    for handle in handles:
        handle.remove()
assert depth[0] == 0
result = [losses, deepest[0], dict(calls), [p.detach().clone() for p in model.parameters()]]
