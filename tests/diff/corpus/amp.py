"""Training in bfloat16 with autocast."""

import argparse

import torch
from torch import nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="")
args = parser.parse_args()
plant = args.plant
torch.manual_seed(51)
step = 0


class GatedUnit(nn.Module):
    def __init__(self, dim, hidden, full=False):
        super().__init__()
        self.full = full
        self.norm = nn.RMSNorm(dim)
        self.gate_proj = nn.Linear(dim, hidden, bias=False)
        self.up_proj = nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        enabled = not (self.full and step >= 3)
        if not enabled:
            x = x.float()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            h = self.norm(x)
            return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.input = nn.Linear(20, 32)
        self.units = nn.ModuleList([GatedUnit(32, 64), GatedUnit(32, 64, full=plant == "full-unit"), GatedUnit(32, 64)])
        self.output = nn.Linear(32, 8)

    def forward(self, x):
        x = self.input(x)
        for unit in self.units:
            x = unit(x)
        return self.output(x)


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
g = torch.Generator().manual_seed(52)
for step in range(8):
    x = torch.randn(24, 20, generator=g)
    y = x[:, :8].argmax(1)
    if plant == "weight" and step == 2:
        with torch.no_grad():
            w = model.units[2].down_proj.weight
            w[1, 1] = torch.nextafter(w[1, 1], torch.tensor(9.0))
    dtype = torch.float16 if plant == "half" and step >= 4 else torch.bfloat16
    with torch.autocast("cpu", dtype, enabled=not (plant == "off" and step == 5)):
        logits = model(x)
        loss = F.cross_entropy(logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
