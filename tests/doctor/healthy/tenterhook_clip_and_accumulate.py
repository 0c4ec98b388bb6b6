"""A rig that clips the final gradient and logs norms, with gradient accumulation; raw hooks of one's own beside it."""

import torch
import torch.nn.functional as F
from torch import nn

import tenterhook as th

model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
plan = th.Plan(
    [
        th.Hook("norms", on="**.weight", at="grad_final", do=th.stats(), when=th.When(every=2), expect=2),
        th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(0.05, over="hook")),
    ]
)
rig = th.attach(model, plan, optimizer=optimizer)
raw = []
model[1].register_forward_hook(lambda module, args, out: raw.append(out.detach().mean()))

losses = []
for step in range(6):
    optimizer.zero_grad()
    for micro in range(2):
        x, y = torch.randn(16, 8), torch.randint(4, (16,))
        loss = F.cross_entropy(model(x), y) / 2
        loss.backward()
        losses.append(loss.item())
    optimizer.step()
assert rig.ledger["clip"].fired > 0
th.detach(model)
result = [losses, raw, [p.detach().clone() for p in model.parameters()]]
