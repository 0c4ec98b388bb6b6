# TH101
"""Watch the blocks of a transformer; this model calls them layers."""

import torch
from torch import nn

import tenterhook as th

model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False)
seen = []
th.hook(model, lambda out: seen.append(out.norm()), on="blocks.*.attn", at="output")  # <- TH101
model(torch.randn(2, 5, 8)).sum().backward()
result = seen
