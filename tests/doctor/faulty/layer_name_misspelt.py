# TH101
"""Clip the gradient of the decoder, under a name that the model does not have."""

import torch
from torch import nn

import tenterhook as th


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(6, 3)
        self.decoder = nn.Linear(3, 6)

    def forward(self, x):
        return self.decoder(torch.tanh(self.encoder(x)))


model = Autoencoder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
clip = th.Hook("clip", on="decodr.weight", at="grad_final", do=th.clip_norm(1.0))
rig = th.attach(model, clip, optimizer=optimizer)  # <- TH101
