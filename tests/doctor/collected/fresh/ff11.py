"""Fit a small network with closure-based steps; gradients are to be clipped by a hook of the optimizer."""
import torch
from torch import nn

torch.manual_seed(11)
MAX_NORM = 0.1


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 32), nn.ELU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.layers(x)[:, 0]


def total_norm(params):
    return torch.stack([p.grad.norm() for p in params]).norm().item()


model = Critic()
params = list(model.parameters())
opt = torch.optim.SGD(params, lr=0.05)


def clip(optimizer, args, kwargs):
    # right before the update, whatever the training loop does
    grads = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    nn.utils.clip_grad_norm_(grads, MAX_NORM)


opt.register_step_pre_hook(clip)

states = torch.randn(64, 5)
returns = 20 * states[:, 0] + 5 * torch.randn(64)


def closure():
    opt.zero_grad()
    loss = nn.functional.mse_loss(model(states), returns)
    loss.backward()
    return loss


worst = 0.0
for it in range(12):
    old = [p.detach().clone() for p in params]
    loss = opt.step(closure)
    # with plain SGD the update is lr * gradient
    used = torch.stack([(p.detach() - o).norm() for p, o in zip(params, old)]).norm().item() / 0.05
    worst = max(worst, used)
    if it % 4 == 0:
        print(f"iteration {it:2d} loss {loss.item():9.3f}  norm of the gradient used {used:.4f}")
print(f"largest gradient norm used {worst:.4f}, limit {MAX_NORM}")
print("limit respected:", worst <= MAX_NORM * 1.01)
