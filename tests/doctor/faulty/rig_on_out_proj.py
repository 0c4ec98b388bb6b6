# TH207
"""Steer attention at out_proj, which nn.MultiheadAttention never calls."""

import torch
from torch import nn

import tenterhook as th

model = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
mute = th.Hook("mute", on="self_attn.out_proj", at="output", do=th.scale(0.0))
rig = th.attach(model, mute, optimizer=optimizer)  # <- TH207
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(2, 5, 8)).square().mean().backward()
    optimizer.step()
result = model.linear1.weight.detach()
