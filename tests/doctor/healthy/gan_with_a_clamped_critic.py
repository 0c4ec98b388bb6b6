"""The generator's backward adds to the critic's gradients, which the critic's zero_grad throws away."""

import torch
from torch import nn

generator, critic = nn.Linear(3, 3), nn.Linear(3, 1)
real = torch.randn(8, 3)
for parameter in critic.parameters():
    parameter.register_hook(lambda grad: grad.clamp(-0.1, 0.1))
for_generator = torch.optim.SGD(generator.parameters(), lr=0.1)
for_critic = torch.optim.SGD(critic.parameters(), lr=0.1)
losses = []
for _ in range(6):
    for_critic.zero_grad()
    loss = critic(generator(torch.randn(8, 3)).detach()).mean() - critic(real).mean()
    loss.backward()
    for_critic.step()
    for_generator.zero_grad()
    (-critic(generator(torch.randn(8, 3))).mean()).backward()
    for_generator.step()
    losses.append(loss.detach())
result = [torch.stack(losses), *(p.detach() for p in [*critic.parameters(), *generator.parameters()])]
