"""Gradient accumulation: two backward passes for each optimizer step."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="")
args = parser.parse_args()
plant = args.plant
torch.manual_seed(41)


class Mixer(nn.Module):
    def __init__(self, tokens=9, width=16):
        super().__init__()
        self.tokens = nn.Sequential(nn.Linear(tokens, 20), nn.GELU(), nn.Linear(20, tokens))
        self.channels = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 40), nn.GELU(), nn.Linear(40, width))

    def forward(self, x):
        x = x + self.tokens(x.mT).mT
        return x + self.channels(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(12, 16)
        self.layers = nn.ModuleList([Mixer(), Mixer()])
        self.classifier = nn.Linear(16, 3)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.classifier(x.mean(1))


model = Model()
matrices = [p for p in model.parameters() if p.ndim > 1]
vectors = [p for p in model.parameters() if p.ndim == 1]
optimizer = torch.optim.AdamW(
    [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}], lr=2e-3
)
criterion = nn.CrossEntropyLoss()
g = torch.Generator().manual_seed(42)
for step in range(8):
    parts = []
    for _ in range(2):
        x = torch.randn(8, 9, 12, generator=g)
        parts.append((x, (x[:, 0].sum(1) > 0).long() + (x[:, 1].sum(1) > 0).long()))
    if plant == "swap" and step == 3:
        parts.reverse()
    if plant == "second-sample" and step == 3:
        parts[1][0][7, 8, 11] += 1e-4
    if plant == "second-labels" and step == 2:
        parts[1][1][:4] = 0
    if not (plant == "no-zero" and step == 4):
        optimizer.zero_grad()
    total = 0.0
    for number, (x, y) in enumerate(parts):
        if plant == "between" and step == 5 and number == 1:
            with torch.no_grad():
                model.layers[1].tokens[0].bias[3] += 1e-3
        loss = criterion(model(x), y)
        loss = loss / (1.0 if plant == "no-half" and step == 6 and number == 1 else 2.0)
        loss.backward()
        if plant == "lost-part" and step == 2 and number == 0:
            model.layers[0].channels[1].weight.grad = None
        total += loss.item()
    optimizer.step()
    print(step, total)
