"""Word vectors with sparse gradients and SparseAdam; a hook counts the rows that each batch touches."""

import torch
import torch.nn.functional as F
from torch import nn

centre = nn.Embedding(100, 8, sparse=True)
context = nn.Embedding(100, 8, sparse=True)
rows = []
centre.weight.register_hook(lambda grad: rows.append(grad.coalesce().indices().shape[1]))
optimizer = torch.optim.SparseAdam([centre.weight, context.weight], lr=0.05)
losses = []
for step in range(6):
    words, near, far = torch.randint(100, (3, 32))
    vector = centre(words)
    positive, negative = (vector * context(near)).sum(dim=1), (vector * context(far)).sum(dim=1)
    loss = F.softplus(-positive).mean() + F.softplus(negative).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, rows, centre.weight.detach(), context.weight.detach()]
