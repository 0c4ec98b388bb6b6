# TH202
"""Scale the gradient of the features, on a detached copy that was made for plotting."""

import torch
from torch import nn

encoder, decoder = nn.Linear(6, 2), nn.Linear(2, 6)
optimizer = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.1)
for _ in range(2):
    x = torch.randn(8, 6)
    code = encoder(x)
    plotted = code.detach().requires_grad_()
    plotted.register_hook(lambda grad: grad * 0.1)  # <- TH202
    optimizer.zero_grad()
    (decoder(code) - x).square().mean().backward()
    optimizer.step()
result = encoder.weight.detach()
