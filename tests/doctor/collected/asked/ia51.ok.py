"""Reptile/MAML-like meta training: meta-gradients are fed to Adam through hooks.

The outer loss is only a vehicle that makes every parameter receive a gradient;
the hooks replace that gradient by the one averaged over the tasks.
"""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(51)
torch.set_num_threads(1)


class SineNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh())
        self.out = nn.Linear(40, 1)

    def forward(self, x):
        return self.out(self.body(x))


def sample_task():
    amplitude = 0.5 + 2 * torch.rand(1)
    phase = 3.14 * torch.rand(1)

    def draw(n):
        x = 10 * torch.rand(n, 1) - 5
        return x, amplitude * torch.sin(x + phase)

    return draw


def adapt(model, x, y, steps=3, lr=0.02):
    learner = copy.deepcopy(model)
    optimizer = torch.optim.SGD(learner.parameters(), lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        F.mse_loss(learner(x), y).backward()
        optimizer.step()
    return learner


def task_gradient(model, task):
    learner = adapt(model, *task(10))
    x, y = task(20)
    loss = F.mse_loss(learner(x), y)
    grads = torch.autograd.grad(loss, list(learner.parameters()))
    return loss.item(), grads


def replace_with(value):
    def hook(grad):
        return value
    return hook


def meta_update(model, optimizer, gradients):
    handles = [
        p.register_hook(replace_with(g)) for p, g in zip(model.parameters(), gradients)
    ]
    x, y = sample_task()(4)
    optimizer.zero_grad()
    F.mse_loss(model(x), y).backward()
    for handle in handles:
        handle.remove()
    optimizer.step()


def main():
    model = SineNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for iteration in range(120):
        totals, losses = None, []
        for _ in range(4):
            loss, grads = task_gradient(model, sample_task())
            losses.append(loss)
            totals = grads if totals is None else [a + b for a, b in zip(totals, grads)]
        meta_update(model, optimizer, [t / 4 for t in totals])
        if iteration % 40 == 39:
            print(f"iteration {iteration + 1}: query loss {sum(losses) / 4:.3f}")

    x, y = sample_task()(64)
    model.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    direct = torch.autograd.grad(F.mse_loss(model(x), y), list(model.parameters()))
    same = all(torch.allclose(p.grad, d) for p, d in zip(model.parameters(), direct))
    print("ordinary training afterwards uses its own gradients:", same)


if __name__ == "__main__":
    main()
