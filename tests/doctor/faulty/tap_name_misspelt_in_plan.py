# TH705
"""Misspell the name of a tap in a plan."""

import warnings

import torch
from torch import nn

import tenterhook as th

warnings.simplefilter("ignore")


class Attention(nn.Module):
    def forward(self, x):
        return th.tap(x.softmax(dim=-1), "probs", within=self) @ x


model = nn.Sequential(Attention())
rig = th.attach(model, th.Hook("p", on="0:prob", at="value", do=th.stats()))
for _ in range(3):
    model(torch.ones(2, 2, requires_grad=True)).sum().backward()
