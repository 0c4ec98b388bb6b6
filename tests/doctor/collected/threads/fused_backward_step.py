"""Low-memory training: one optimizer per parameter, stepped during backward."""
import torch
from torch import nn

torch.manual_seed(0)
LR, CLIP = 0.05, 1.0

model = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
optimizers = {p: torch.optim.SGD([p], lr=LR) for p in model.parameters()}


def step_and_free(param):
    optimizers[param].step()
    optimizers[param].zero_grad(set_to_none=True)


for p in model.parameters():
    p.register_post_accumulate_grad_hook(step_and_free)


def batch(step):
    x = torch.randn(32, 20)
    y = x[:, :3].sum(1, keepdim=True)
    if step == 12:
        y = y + 500.0 * (torch.arange(32) % 8 == 0).float().unsqueeze(1)
    return x, y


def snapshot():
    return torch.cat([p.detach().flatten() for p in model.parameters()]).clone()


for step in range(20):
    x, y = batch(step)
    before = snapshot()
    loss = (model(x) - y).pow(2).mean()
    loss.backward()
    total = nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    update = (snapshot() - before).norm()
    if step % 4 == 0 or step == 13:
        print(f"step {step:2d} loss {loss.item():10.3f} clip_grad_norm_ returned {float(total):.3f} "
              f"update {update:8.4f} (limit would be {LR * CLIP})")
