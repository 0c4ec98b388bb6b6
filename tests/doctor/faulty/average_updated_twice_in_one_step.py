# TH415
"""Average the weights after each step of an optimizer with a warmup, whose step() calls the step() of Adam."""

import torch
from torch import nn


class WarmedUp(torch.optim.Adam):
    def step(self, closure=None):
        for group in self.param_groups:
            group["lr"] = min(group["lr"] * 2, 0.1)
        return super().step(closure)


torch.manual_seed(0)
critic, actor = nn.Linear(3, 1), nn.Linear(3, 1)
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=0.01)
optimizer = WarmedUp(actor.parameters(), lr=0.01)
average = actor.weight.detach().clone()


def update_average(optimizer, args, kwargs):
    average.lerp_(actor.weight.detach(), 0.1)


optimizer.register_step_post_hook(update_average)  # <- TH415
for batch in torch.randn(3, 2, 3):
    optimizer.zero_grad()
    critic_optimizer.zero_grad()
    (actor(batch) * critic(batch)).sum().backward()
    critic_optimizer.step()
    optimizer.step()
result = average
