"""Stop and go on: the optimizer's own state dict hooks add the step count to the checkpoint and take it out again."""

import tempfile

import torch
import torch.nn.functional as F
from torch import nn

progress = {"step": 0}


def add_progress(optimizer, state_dict):
    state_dict["progress"] = progress["step"]


def take_progress(optimizer, state_dict):
    state_dict = dict(state_dict)
    progress["step"] = state_dict.pop("progress")
    return state_dict


def build():
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    optimizer.register_state_dict_post_hook(add_progress)
    optimizer.register_load_state_dict_pre_hook(take_progress)
    return model, optimizer


def train(model, optimizer, steps):
    for _ in range(steps):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), (x[:, 0] > 0).long())
        loss.backward()
        optimizer.step()
        progress["step"] += 1
        losses.append(loss.item())


losses = []
model, optimizer = build()
train(model, optimizer, 4)
with tempfile.TemporaryFile() as file:
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file)
progress["step"] = 0
model, optimizer = build()
model.load_state_dict(saved["model"])
optimizer.load_state_dict(saved["optimizer"])
assert progress["step"] == 4
train(model, optimizer, 3)
result = [losses, progress["step"], [p.detach().clone() for p in model.parameters()]]
