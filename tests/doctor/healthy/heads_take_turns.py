"""Two tasks with a shared trunk: each step trains one head; hooks on both heads fire in turn."""

import torch
import torch.nn.functional as F
from torch import nn


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 24), nn.ReLU())
        self.heads = nn.ModuleDict({"sign": nn.Linear(24, 2), "size": nn.Linear(24, 1)})

    def forward(self, x, task):
        return {"task": task, "logits": self.heads[task](self.trunk(x))}


model = MultiTask()
norms = {"trunk": [], "sign": [], "size": []}
seen = []
model.register_forward_hook(lambda m, args, out: seen.append(out["task"]))
model.trunk[0].weight.register_hook(lambda grad: norms["trunk"].append(grad.norm()))
for task, head in model.heads.items():
    head.weight.register_hook(lambda grad, task=task: norms[task].append(grad.norm()))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
for step in range(8):
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    if step % 2 == 0:
        loss = F.cross_entropy(model(x, "sign")["logits"], (x[:, 0] > 0).long())
    else:
        loss = F.mse_loss(model(x, "size")["logits"].squeeze(1), x.norm(dim=1))
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, seen, norms, [p.detach().clone() for p in model.parameters()]]
