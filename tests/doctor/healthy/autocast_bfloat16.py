"""Mixed precision with autocast to bfloat16 on the CPU; hooks log dtypes and gradient norms."""

import torch
import torch.nn.functional as F
from torch import nn

model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))
dtypes, norms = set(), []
for module in model:
    module.register_forward_hook(lambda m, args, out: dtypes.add(str(out.dtype)))
for param in model.parameters():
    param.register_hook(lambda grad: norms.append(grad.float().norm().item()))

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
losses = []
for step in range(6):
    x, y = torch.randn(32, 16), torch.randint(5, (32,))
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(x), y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.item())
result = [losses, sorted(dtypes), norms, [p.detach().clone() for p in model.parameters()]]
