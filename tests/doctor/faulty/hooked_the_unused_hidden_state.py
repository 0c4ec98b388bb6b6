# TH202
"""Clip the gradient of an LSTM's last hidden state, where the loss is made of its outputs."""

import torch
from torch import nn

lstm, head = nn.LSTM(3, 5, batch_first=True), nn.Linear(5, 1)
outputs, (h_n, c_n) = lstm(torch.randn(2, 7, 3))
h_n.register_hook(lambda grad: grad.clamp(-0.01, 0.01))  # <- TH202
loss = head(outputs).square().mean()
loss.backward()
result = lstm.weight_hh_l0.grad
