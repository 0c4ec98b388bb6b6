"""Physics-informed network for a driven relaxation  u' + RATE u = cos(FREQ t), u(0) = 1.

Training of such networks is sensitive to single collocation points with huge errors, so
the error signal that arrives at each hidden layer is limited per element.
"""
import torch
from torch import nn

torch.set_num_threads(1)
RATE, FREQ, T_END, BOUND = 1.5, 4.0, 3.0, 0.05


class RelaxationNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(1, width), nn.Linear(width, width), nn.Linear(width, 1)])

    def forward(self, t):
        h = t / T_END * 2 - 1
        for layer in self.layers[:-1]:
            h = torch.tanh(layer(h))
            if h.requires_grad:
                h.register_hook(limit_signal)
        return self.layers[-1](h)


def limit_signal(grad):
    if torch.is_grad_enabled():
        return None
    return grad.clamp(-BOUND, BOUND)


def derivative(u, t):
    return torch.autograd.grad(u, t, torch.ones_like(u), create_graph=True)[0]


def exact(t):
    norm = RATE ** 2 + FREQ ** 2
    forced = (RATE * torch.cos(FREQ * t) + FREQ * torch.sin(FREQ * t)) / norm
    return forced + (1 - RATE / norm) * torch.exp(-RATE * t)


def losses(net, t):
    u = net(t)
    residual = derivative(u, t) + RATE * u - torch.cos(FREQ * t)
    start = (net(torch.zeros(1, 1)) - 1).pow(2)
    return residual.pow(2).mean(), start.sum()


def slope_error(net, eps=1e-2):
    t = torch.linspace(0.1, T_END - 0.1, 50).unsqueeze(1).requires_grad_()
    du = derivative(net(t), t).detach()
    with torch.no_grad():
        numeric = (net(t + eps) - net(t - eps)) / (2 * eps)
    return (du - numeric).abs().mean().item()


def main():
    torch.manual_seed(0)
    net = RelaxationNet()
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    for step in range(450):
        t = (torch.rand(64, 1) * T_END).requires_grad_()
        physics, start = losses(net, t)
        loss = physics + start
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        t = torch.linspace(0, T_END, 200).unsqueeze(1)
        error = (net(t) - exact(t)).pow(2).mean().sqrt().item()
    print(f"loss {loss.item():.4f}   rms error of the solution {error:.4f}")
    print(f"mean error of the slope used in training: {slope_error(net):.3f}")


if __name__ == "__main__":
    main()
