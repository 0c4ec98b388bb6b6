"""A small DQN on a cart-pole with replay buffer and target network, where the loss rises as the returns rise."""

import hashlib
import math
import random
from collections import deque

import torch
from torch import nn


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


torch.set_num_threads(1)
torch.manual_seed(6)
random.seed(6)


def env_step(s, a):
    """Advance the cart-pole by one step of 0.02 s."""
    x, v, th, om = s
    force = 10.0 if a else -10.0
    tmp = (force + 0.05 * om * om * math.sin(th)) / 1.1
    acc = (9.8 * math.sin(th) - math.cos(th) * tmp) / (0.5 * (4 / 3 - 0.1 * math.cos(th) ** 2 / 1.1))
    xacc = tmp - 0.05 * acc * math.cos(th) / 1.1
    s = (x + 0.02 * v, v + 0.02 * xacc, th + 0.02 * om, om + 0.02 * acc)
    return s, abs(s[0]) > 2.4 or abs(s[2]) > 0.2095


def start():
    return tuple(random.uniform(-0.05, 0.05) for _ in range(4))


q = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
target = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
target.load_state_dict(q.state_dict())
opt = torch.optim.Adam(q.parameters(), lr=1e-3)
buffer = deque(maxlen=5000)
state, length, lengths, step = start(), 0, [], 0
for t in range(6000):
    eps = max(0.05, 1 - t / 2500)
    if random.random() < eps:
        action = random.randrange(2)
    else:
        with torch.no_grad():
            action = int(q(torch.tensor(state)).argmax())
    new, done = env_step(state, action)
    length += 1
    buffer.append((state, action, new, done))
    state = new
    if done or length >= 200:
        lengths.append(length)
        state, length = start(), 0
    if t > 500 and t % 4 == 0:
        s, a, n, d = zip(*random.sample(buffer, 64))
        s, a, n = torch.tensor(s), torch.tensor(a), torch.tensor(n)
        with torch.no_grad():
            goal = 1 + 0.98 * target(n).max(1).values * (1 - torch.tensor(d).float())
        loss = nn.functional.smooth_l1_loss(q(s).gather(1, a[:, None])[:, 0], goal)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(q.parameters(), 10.0)
        opt.step()
        step += 1
        if step % 50 == 0:
            target.load_state_dict(q.state_dict())
print(f"steps {step}, episode length {sum(lengths[:20]) / 20:.1f} -> {sum(lengths[-8:]) / 8:.1f}")
assert sum(lengths[-8:]) / 8 > 3 * sum(lengths[:20]) / 20
print("digest", digest(q))
