"""DeepSets in float16 autocast with a GradScaler: how many elements of the set are inside the circle?"""
import json
import os

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
fault = json.loads(os.environ.get("FAULT", "{}"))
KIND, BEGIN, PLACE = fault.get("kind", ""), fault.get("step", 0), fault.get("layer", "")
torch.manual_seed(fault.get("seed", 0))
WIDTH, CLASSES, TOTAL = 32, 6, 150
iteration = 0


class SetLayer(nn.Module):
    def __init__(self, place):
        super().__init__()
        self.place = place
        self.norm = nn.LayerNorm(WIDTH)
        self.each, self.all = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def has(self, kind):
        return KIND == kind and PLACE == self.place and iteration >= BEGIN

    def forward(self, x):
        n = self.norm(x)
        h = F.gelu(self.each(n) + self.all(n.mean(1, keepdim=True)))
        if self.has("fp16_overflow"):
            h = h.half().add(2).mul(300).mul(300)
        if self.has("detach_block"):
            h = h.detach()
        return x + h


class DeepSets(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = nn.Linear(2, WIDTH)
        self.layers = nn.ModuleList([SetLayer(f"layers.{i}") for i in range(4)])
        self.out = nn.Linear(WIDTH, CLASSES)

    def forward(self, points):
        x = self.lift(points)
        for layer in self.layers:
            x = layer(x)
        return self.out(x.mean(1))


def sets(n=48):
    inside = torch.randint(CLASSES, (n,))
    radius = torch.where(torch.arange(5) < inside[:, None], torch.rand(n, 5) * 0.8, 1.2 + torch.rand(n, 5))
    angle = torch.rand(n, 5) * 6.2832
    return torch.stack([radius * angle.cos(), radius * angle.sin()], -1), inside


def build():
    model = DeepSets()
    chosen = []
    for name, child in model.named_modules():
        if KIND == "not_in_opt" and name == PLACE:
            continue
        if KIND == "not_in_opt" and name.startswith(PLACE + "."):
            continue
        chosen += list(child.parameters(recurse=False))
    return model, torch.optim.AdamW(chosen, lr=5e-3, weight_decay=0.0)


model, optimizer = build()
scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
while iteration < TOTAL:
    points, count = sets()
    if KIND == "labels_random":
        count = torch.randint_like(count, CLASSES)
    if KIND == "batch_labels" and iteration == BEGIN:
        count = CLASSES - 1 - count
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(model(points).float(), count)
    if KIND == "fp16_loss" and iteration >= BEGIN:
        loss = loss * 1e15 * 1e16
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if iteration % 30 == 0 or iteration == TOTAL - 1:
        print("iteration", iteration, "loss", f"{loss.item():.4f}")
    iteration += 1
