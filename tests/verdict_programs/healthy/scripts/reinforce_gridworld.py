"""REINFORCE with a moving baseline on a grid with a trap; the loss is noisy, often negative and does not fall."""

import hashlib

import torch
from torch import nn
from torch.distributions import Categorical


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


torch.set_num_threads(1)
torch.manual_seed(5)
SIZE, GOAL, ENVS, LIMIT = 6, (5, 5), 16, 24
MOVES = torch.tensor([[1, 0], [-1, 0], [0, 1], [0, -1]])


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2 * SIZE, 48), nn.Tanh(), nn.Linear(48, 4))

    def forward(self, pos):
        onehot = nn.functional.one_hot(pos, SIZE).float().flatten(1)
        return Categorical(logits=self.net(onehot))


policy = Policy()
opt = torch.optim.Adam(policy.parameters(), lr=4e-3)
baseline, returns = 0.0, []
for episode in range(600):
    pos = torch.zeros(ENVS, 2, dtype=torch.long)
    done = torch.zeros(ENVS, dtype=torch.bool)
    logps, rewards, alive = [], [], []
    for _t in range(LIMIT):
        dist = policy(pos)
        action = dist.sample()
        new = (pos + MOVES[action]).clamp(0, SIZE - 1)
        reached = (new == torch.tensor(GOAL)).all(1)
        trapped = (new == torch.tensor((2, 3))).all(1)
        logps.append(dist.log_prob(action))
        rewards.append(torch.where(done, 0.0, -0.05 + 1.0 * reached - 1.0 * trapped))
        alive.append((~done).float())
        done = done | reached | trapped
        pos = torch.where(done[:, None], pos, new)
        if done.all():
            break
    rewards = torch.stack(rewards)
    to_go = rewards.flip(0).cumsum(0).flip(0)
    loss = -(torch.stack(logps) * (to_go - baseline) * torch.stack(alive)).sum(0).mean()
    total = rewards.sum(0).mean().item()
    baseline = 0.95 * baseline + 0.05 * total
    returns.append(total)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"return {sum(returns[:20]) / 20:.3f} -> {sum(returns[-20:]) / 20:.3f}")
assert sum(returns[-20:]) / 20 > sum(returns[:20]) / 20 + 0.5
print("digest", digest(policy))
