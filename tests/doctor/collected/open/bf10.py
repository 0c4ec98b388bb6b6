"""DQN on a toy corridor with a penalty on the size of the online network's features."""
import copy
import random
import torch
from torch import nn

torch.manual_seed(0)
random.seed(0)
N_STATES, GAMMA, PENALTY = 12, 0.9, 0.05


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(N_STATES, 64), nn.ReLU())
        self.q = nn.Linear(64, 2)

    def forward(self, s):
        return self.q(self.phi(s))


def one_hot(states):
    return nn.functional.one_hot(torch.tensor(states), N_STATES).float()


def fill_replay(n=600):
    buffer, s = [], 0
    for _ in range(n):
        a = random.randint(0, 1)
        s2 = min(N_STATES - 1, s + 1) if a else max(0, s - 1)
        done = s2 == N_STATES - 1
        buffer.append((s, a, 1.0 if done else 0.0, s2, done))
        s = 0 if done else s2
    return buffer


online = QNet()
latest = {}


def remember(module, args, output):
    latest["phi"] = output


# features of the online network, for the penalty
online.phi.register_forward_hook(remember)
target = copy.deepcopy(online).requires_grad_(False)
optimizer = torch.optim.Adam(online.parameters(), lr=3e-3)
replay = fill_replay()

for update in range(200):
    s, a, r, s2, done = zip(*random.sample(replay, 32))
    q = online(one_hot(s)).gather(1, torch.tensor(a).unsqueeze(1)).squeeze(1)
    with torch.no_grad():
        boot = target(one_hot(s2)).max(dim=1).values
        goal = torch.tensor(r) + GAMMA * boot * (1 - torch.tensor(done, dtype=torch.float))
    td = nn.functional.smooth_l1_loss(q, goal)
    reg = PENALTY * latest["phi"].pow(2).sum(dim=1).mean()
    optimizer.zero_grad()
    (td + reg).backward()
    optimizer.step()
    if (update + 1) % 20 == 0:
        target.load_state_dict(online.state_dict())
    if (update + 1) % 50 == 0:
        print(f"update {update + 1}: td {td.item():.4f}  penalty {reg.item():.4f}")

with torch.no_grad():
    every = one_hot(list(range(N_STATES)))
    size = online.phi(every).pow(2).sum(dim=1).mean().item()
print(f"squared feature size over all states: {size:.3f} -> {'compact' if size < 0.5 else 'large'}")
