"""Add a steering vector to the branch of one residual block."""
import torch
from torch import nn

torch.manual_seed(0)
D = 12


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.1)
        self.gate = nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        branch = self.drop(x)
        return x + self.gate * branch


class Model(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.embed = nn.Linear(4, D)
        self.blocks = nn.ModuleList(Block() for _ in range(depth))

    def forward(self, x):
        h = self.embed(x)
        trace = [h.clone()]
        for b in self.blocks:
            h = b(h)
            trace.append(h.clone())
        return h, trace


def steer_with(vec, alpha):
    def hook(module, args, output):
        output.add_(alpha * vec)
        return output
    return hook


model = Model().eval()
vec = nn.functional.normalize(torch.randn(D), dim=0)
x = torch.randn(6, 4)
with torch.no_grad():
    _, clean = model(x)
    for alpha in (1.0, 2.0, 4.0):
        handle = model.blocks[1].drop.register_forward_hook(steer_with(vec, alpha))
        _, steered = model(x)
        handle.remove()
        shift = ((steered[2] - clean[2]) @ vec).mean()
        print(f"alpha {alpha}: shift after block 1 along vec {shift:.3f}, expected gate*alpha = {0.5 * alpha:.3f}")
