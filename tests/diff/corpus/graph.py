"""Message passing on a random graph, with keyword arguments and a mask of labelled nodes."""

import argparse
import zlib

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="")
parser.add_argument("--reversed-definition", action="store_true")
parser.add_argument("--identity", action="store_true")
args = parser.parse_args()
plant = args.plant
torch.set_num_threads(1)
step = 0


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        if args.reversed_definition:
            self.norm, self.update = nn.LayerNorm(16), nn.Linear(32, 16)
            self.drop, self.message = nn.Identity() if args.identity else nn.Dropout(0.0), nn.Linear(32, 16)
        else:
            self.message, self.drop = nn.Linear(32, 16), nn.Identity() if args.identity else nn.Dropout(0.0)
            self.update, self.norm = nn.Linear(32, 16), nn.LayerNorm(16)
        self.back, self.mean = False, False

    def forward(self, h, edges):
        source, goal = edges
        sent = self.drop(F.relu(self.message(torch.cat([h[source], h[goal]], 1))))
        total = torch.zeros_like(h).index_add(0, source if self.back else goal, sent)
        total = total / torch.bincount(goal, minlength=len(h)).clamp(min=1)[:, None] if self.mean else total
        return self.norm(h + self.update(torch.cat([h, total], 1)))


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(5, 16)
        self.layers = nn.ModuleList([Layer() for _ in range(3)])
        self.classify = nn.Linear(16, 3)

    def forward(self, *, nodes, edges):
        h = self.embed(nodes)
        for layer in self.layers:
            h = layer(h, edges)
        return self.classify(h)


model = Graph()
with torch.no_grad():
    for name, p in model.named_parameters():
        if p.dim() == 2:
            p.normal_(0, 0.2, generator=torch.Generator().manual_seed(zlib.crc32(name.encode())))
        elif name.endswith("bias"):
            p.zero_()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 6 if plant == "scheduler" else 8, 0.5)
g = torch.Generator().manual_seed(71)
model.layers[1].mean = plant == "mean"
for step in range(15):
    nodes, edges = torch.randn(30, 5, generator=g), torch.randint(30, (2, 90), generator=g)
    labels, mask = nodes.argmax(1) % 3, torch.rand(30, generator=g) < 0.6
    if plant == "edge" and step == 5:
        edges[0, 11] = (edges[0, 11] + 1) % 30
    if plant == "mask" and step == 6:
        mask[4] = ~mask[4]
    if plant == "norm-weight" and step == 7:
        model.layers[2].norm.weight.data[3] += 1e-3
    model.layers[2].back = plant == "back" and step == 4
    loss = F.cross_entropy(model(nodes=nodes, edges=edges)[mask], labels[mask])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    print(step, loss.item())
