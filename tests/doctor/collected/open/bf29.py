"""DDPG-like agent on a one-step control task; the target critic follows the critic by Polyak averaging."""
import copy
import torch
from torch import nn

torch.manual_seed(37)
TAU, UPDATES = 0.02, 60


class ClippedAdam(torch.optim.Adam):
    """Adam that clips the gradient of its parameters first."""

    def __init__(self, params, lr, max_norm=1.0):
        super().__init__(params, lr=lr)
        self.max_norm = max_norm

    def step(self, closure=None):
        for group in self.param_groups:
            nn.utils.clip_grad_norm_(group["params"], self.max_norm)
        return super().step(closure)


def net(n_in, n_out):
    return nn.Sequential(nn.Linear(n_in, 32), nn.Tanh(), nn.Linear(32, n_out))


actor, critic = net(3, 1), net(4, 1)
target = copy.deepcopy(critic).requires_grad_(False)
actor_opt = torch.optim.Adam(actor.parameters(), lr=1e-3)
critic_opt = ClippedAdam(critic.parameters(), lr=3e-3)
counter = {"polyak": 0}


def polyak(optimizer, args, kwargs):
    """target <- (1 - TAU) * target + TAU * critic, once per critic update"""
    counter["polyak"] += 1
    with torch.no_grad():
        for t, p in zip(target.parameters(), critic.parameters()):
            t.lerp_(p, TAU)


critic_opt.register_step_post_hook(polyak)
start = [p.detach().clone() for p in target.parameters()]

for update in range(UPDATES):
    s = torch.randn(64, 3)
    with torch.no_grad():
        a = actor(s) + 0.3 * torch.randn(64, 1)
        reward = -(a - s[:, :1]).pow(2)
        s2 = 0.9 * s + 0.1 * torch.randn(64, 3)
        goal = reward + 0.9 * target(torch.cat([s2, actor(s2)], dim=1))
    critic_loss = (critic(torch.cat([s, a], dim=1)) - goal).pow(2).mean()
    critic_opt.zero_grad()
    critic_loss.backward()
    critic_opt.step()

    actor_loss = -critic(torch.cat([s, actor(s)], dim=1)).mean()
    actor_opt.zero_grad()
    actor_loss.backward()
    actor_opt.step()
    if update % 20 == 19:
        print(f"update {update + 1}: critic {critic_loss.item():.3f}  actor {actor_loss.item():.3f}")

print(f"critic updates {UPDATES}, target updates {counter['polyak']}")
print(f"share of the initial weights left in the target: {(1 - TAU) ** counter['polyak']:.3f}")
way = sum((t - s).norm().item() for t, s in zip(target.parameters(), start))
print(f"distance travelled by the target {way:.3f}")
