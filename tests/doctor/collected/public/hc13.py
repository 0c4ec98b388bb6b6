"""Physics-informed network for the decay/forcing problem u' + u = f(t), u(0) = 0."""
import math

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(17)

OMEGA = 3.0 * math.pi
CLIP = 1.0
STEPS = 1500


class PINN(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.first = nn.Linear(1, width)
        self.second = nn.Linear(width, width)
        self.last = nn.Linear(width, 1)
        nn.init.uniform_(self.first.weight, -8.0, 8.0)

    def forward(self, t):
        h = torch.tanh(self.first(t))
        h = torch.tanh(self.second(h))
        return t * self.last(h)


def exact_solution(t):
    return torch.sin(OMEGA * t)


def forcing(t):
    return OMEGA * torch.cos(OMEGA * t) + torch.sin(OMEGA * t)


def clip_layer_gradient(module, grad_input, grad_output):
    return tuple(None if g is None else g.clamp(-CLIP, CLIP) for g in grad_input)


def install_clipping(model):
    for layer in (model.first, model.second, model.last):
        layer.register_full_backward_hook(clip_layer_gradient)


def time_derivative(u, t):
    return torch.autograd.grad(u, t, torch.ones_like(u), create_graph=True)[0]


def residual_loss(model, t):
    u = model(t)
    return (time_derivative(u, t) + u - forcing(t)).pow(2).mean()


def train(model):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.998)
    t = torch.linspace(0.0, 1.0, 80).unsqueeze(1).requires_grad_(True)
    for step in range(1, STEPS + 1):
        loss = residual_loss(model, t)
        optimizer.zero_grad()
        loss.backward(inputs=list(model.parameters()))
        optimizer.step()
        scheduler.step()
        if step % 500 == 0:
            print(f"step {step:4d}  residual {loss.item():.5f}")


def main():
    model = PINN()
    install_clipping(model)
    train(model)

    t = torch.linspace(0.0, 1.0, 201).unsqueeze(1).requires_grad_(True)
    u = model(t)
    du = time_derivative(u, t)
    error = (u - exact_solution(t)).norm() / exact_solution(t).norm()
    print(f"largest |u| {u.abs().max().item():.3f}  largest |u'| {du.abs().max().item():.3f}")
    print(f"relative error of the solution {error.item():.4f}")


if __name__ == "__main__":
    main()
