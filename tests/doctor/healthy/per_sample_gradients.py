"""Per-sample gradients with torch.func, clipped one by one and averaged (DP-SGD); no hook on the module."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, vmap

model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
update_norms = []


def log_update(optimizer, args, kwargs):
    update_norms.append(sum(p.grad.square().sum() for p in model.parameters()).sqrt())


optimizer.register_step_pre_hook(log_update)


def sample_loss(params, x, y):
    logits = functional_call(model, params, (x.unsqueeze(0),))
    return F.cross_entropy(logits, y.unsqueeze(0))


per_sample = vmap(grad(sample_loss), in_dims=(None, 0, 0))
losses = []
for step in range(6):
    x, y = torch.randn(24, 6), torch.randint(3, (24,))
    params = {name: p.detach() for name, p in model.named_parameters()}
    grads = per_sample(params, x, y)
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)
    factor = (1.0 / (norms + 1e-6)).clamp(max=1.0)
    for name, p in model.named_parameters():
        p.grad = torch.einsum("n,n...->...", factor, grads[name]) / len(x)
    optimizer.step()
    with torch.no_grad():
        losses.append(F.cross_entropy(model(x), y).item())
result = [losses, update_norms, [p.detach().clone() for p in model.parameters()]]
