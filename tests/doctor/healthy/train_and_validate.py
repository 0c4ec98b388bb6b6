"""Epochs of training and of validation without grad; hooks of every kind stay on through both."""

import torch
import torch.nn.functional as F
from torch import nn

model = nn.Sequential(nn.Linear(8, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 3))
counts = {"forward": 0, "pre": 0, "backward": 0, "backward_pre": 0}
flows = []


def on_forward(module, args, output):
    counts["forward"] += 1


def on_pre(module, args):
    counts["pre"] += 1


def on_backward(module, grad_input, grad_output):
    counts["backward"] += 1
    flows.append(grad_output[0].norm().item())


def on_backward_pre(module, grad_output):
    counts["backward_pre"] += 1


model[4].register_forward_hook(on_forward)
model[4].register_forward_pre_hook(on_pre)
model[4].register_full_backward_hook(on_backward)
model[4].register_full_backward_pre_hook(on_backward_pre)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
train, valid = torch.randn(4, 16, 8), torch.randn(2, 16, 8)
losses = []
for epoch in range(3):
    model.train()
    for x in train:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), x[:, :3].argmax(dim=1))
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        losses.append(sum(F.cross_entropy(model(x), x[:, :3].argmax(dim=1)).item() for x in valid))
assert counts == {"forward": 18, "pre": 18, "backward": 12, "backward_pre": 12}
result = [losses, flows, list(model.state_dict().values())]
