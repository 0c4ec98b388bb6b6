"""MAML-like training (first order); every gradient should be clipped by a hook."""
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
MAX_NORM, INNER_LR = 0.1, 0.5
calls = {"clip": 0}


def clip_param(p):
    calls["clip"] += 1
    n = p.grad.norm()
    if n > MAX_NORM:
        p.grad.mul_(MAX_NORM / n)


model = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 1))
for p in model.parameters():
    p.register_post_accumulate_grad_hook(clip_param)
opt = torch.optim.SGD(model.parameters(), lr=0.05)


def task():
    amp, phase = 1 + 9 * torch.rand(1), 3 * torch.rand(1)
    x = torch.rand(20, 1) * 6 - 3
    return x, amp * torch.sin(x + phase)


def mse(x, y):
    return (model(x) - y).pow(2).mean()


for it in range(6):
    x, y = task()
    slow = [p.detach().clone() for p in model.parameters()]
    first, steps = mse(x, y).item(), []
    for _ in range(3):
        grads = torch.autograd.grad(mse(x, y), list(model.parameters()))
        with torch.no_grad():
            for p, g in zip(model.parameters(), grads):
                p -= INNER_LR * g
        steps.append(max(INNER_LR * g.norm().item() for g in grads))
    inner_calls = calls["clip"]
    loss = mse(x, y)
    opt.zero_grad()
    loss.backward()
    with torch.no_grad():
        for p, s in zip(model.parameters(), slow):
            p.copy_(s)
    opt.step()
    print(f"task {it}: loss {first:8.3f} -> {loss.item():12.3f}, largest inner step {max(steps):9.3f} "
          f"(limit {INNER_LR * MAX_NORM}), clip calls in inner loop {inner_calls}, in total {calls['clip']}")
    calls["clip"] = 0
