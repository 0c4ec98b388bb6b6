"""A Siamese encoder runs twice in each forward; hooks keep both embeddings for the loss and log their spread."""

import torch
import torch.nn.functional as F
from torch import nn

encoder = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 8))
views, spread = [], []
encoder.register_forward_hook(lambda module, args, out: views.append(F.normalize(out, dim=1)))
encoder[0].weight.register_hook(lambda grad: spread.append(grad.std().item()))
optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-2)
losses = []
for step in range(6):
    x = torch.randn(16, 12)
    views.clear()
    encoder(x + 0.1 * torch.randn_like(x))
    encoder(x + 0.1 * torch.randn_like(x))
    similarity = views[0] @ views[1].T / 0.2
    loss = F.cross_entropy(similarity, torch.arange(16))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, spread, [p.detach().clone() for p in encoder.parameters()]]
