# TH104
"""Clip the head before the step, where the optimizer was made of the body alone."""

import torch
from torch import nn

import tenterhook as th


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.body(x).relu())


model = Classifier()
optimizer = torch.optim.Adam(model.body.parameters(), lr=1e-2)
clip = th.Hook("clip", on="head.weight", at="grad_final", do=th.clip_norm(0.5))
th.attach(model, clip, optimizer=optimizer)  # <- TH104
