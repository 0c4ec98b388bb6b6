"""WGAN-GP: the penalty differentiates the critic's input gradient; hooks log activations and weight gradients."""

import torch
from torch import nn

generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
critic = nn.Sequential(nn.Linear(2, 32), nn.Softplus(), nn.Linear(32, 32), nn.Softplus(), nn.Linear(32, 1))
opt_g = torch.optim.RMSprop(generator.parameters(), lr=1e-3)
opt_c = torch.optim.RMSprop(critic.parameters(), lr=1e-3)
activations, weight_grads = [], []
critic[1].register_forward_hook(lambda m, args, out: activations.append(out.detach().mean()))
critic[2].weight.register_post_accumulate_grad_hook(lambda p: weight_grads.append(p.grad.norm()))


def gradient_penalty(real, fake):
    alpha = torch.rand(real.shape[0], 1)
    mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    (grad,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    return (grad.norm(dim=1) - 1).square().mean()


losses = []
for step in range(5):
    for _ in range(2):
        real = torch.randn(16, 2) + 2
        fake = generator(torch.randn(16, 4)).detach()
        opt_c.zero_grad()
        loss_c = critic(fake).mean() - critic(real).mean() + 10 * gradient_penalty(real, fake)
        loss_c.backward()
        opt_c.step()
    opt_g.zero_grad()
    loss_g = -critic(generator(torch.randn(16, 4))).mean()
    loss_g.backward()
    opt_g.step()
    losses.append((loss_c.item(), loss_g.item()))
weights = [p.detach().clone() for net in (generator, critic) for p in net.parameters()]
result = [losses, activations, weight_grads, weights]
