"""DQN with a target network: a particle is pushed towards the origin; random replay memory, RMSprop."""
import copy
import json
import os

import torch
from torch import nn

torch.set_num_threads(1)
fault = json.loads(os.environ.get("FAULT", "{}"))
KIND, STEP, LAYER = fault.get("kind", ""), fault.get("step", 0), fault.get("layer", "")
torch.manual_seed(fault.get("seed", 0))
PUSH = torch.tensor([[0.4, 0.0], [-0.4, 0.0], [0.0, 0.4], [0.0, -0.4]])


class Hidden(nn.Linear):
    """A linear layer that contains its activation."""

    wrong = ""

    def forward(self, x):
        z = super().forward(x)
        if KIND == "sigmoid_stack":
            return torch.sigmoid(z)
        if self.wrong == "fwd_exp":
            return torch.exp(torch.exp(z * z + 5))
        if self.wrong == "fwd_div":
            return torch.relu(z) / torch.relu(-1 - z.abs()).sum(1, keepdim=True)
        return torch.relu(z)


class QNetwork(nn.Module):
    def __init__(self, width=48, depth=5):
        super().__init__()
        if KIND == "sigmoid_stack":
            depth = 8
        self.layers = nn.ModuleList([Hidden(4 if i == 0 else width, width) for i in range(depth)])
        self.value = nn.Linear(width, 4)

    def forward(self, state):
        for layer in self.layers:
            state = layer(state)
        return self.value(state)


class Replay:
    def __init__(self, size=4000):
        self.pos, self.vel = torch.randn(size, 2), 0.3 * torch.randn(size, 2)
        self.action = torch.randint(4, (size,))
        vel = self.vel + PUSH[self.action]
        pos = self.pos + vel
        self.state, self.after = torch.cat([self.pos, self.vel], 1), torch.cat([pos, vel], 1)
        self.reward = 2 * (self.pos.norm(dim=1) - pos.norm(dim=1))

    def batch(self, n=64):
        i = torch.randint(len(self.state), (n,))
        return self.state[i], self.action[i], self.reward[i], self.after[i]


memory = Replay()
online = QNetwork()
if KIND == "dead_bias":
    layer = online.get_submodule(LAYER)
    layer.bias.data = torch.full_like(layer.bias, -300.0)
target = copy.deepcopy(online).requires_grad_(False)
rms = torch.optim.RMSprop(online.parameters(), lr=1e-3, alpha=0.95)
huber = nn.SmoothL1Loss()
for step in range(190):
    s, a, r, s2 = memory.batch()
    if step == STEP and KIND:
        if KIND in ("fwd_exp", "fwd_div"):
            online.get_submodule(LAYER).wrong = KIND
        if KIND == "data_inf":
            s = s.clone()
            s[0, 3] = torch.tensor(3e38) * 10
        if KIND == "batch_labels":
            r = r * 500
        if KIND == "param_nan":
            w = online.get_parameter(LAYER)
            w.data[0, 0] = torch.log(torch.tensor(-1.0))
        if KIND == "grad_hook":
            handle = online.get_parameter(LAYER).register_hook(lambda g: g + g.sign() * 1e3)
        if KIND == "lr_spike":
            rms.param_groups[0]["lr"] *= 2000
    with torch.no_grad():
        goal = r + 0.7 * target(s2).max(1).values
    q = online(s).gather(1, a[:, None])[:, 0]
    loss = huber(q, goal)
    rms.zero_grad()
    loss.backward()
    rms.step()
    if step == STEP and KIND == "grad_hook":
        handle.remove()
    if step == STEP and KIND == "lr_spike":
        rms.param_groups[0]["lr"] /= 2000
    with torch.no_grad():
        for old, new in zip(target.parameters(), online.parameters()):
            old.lerp_(new, 0.05)
    if step % 45 == 0 or step == 189:
        print(f"{step:4d} td {loss.item():.5f}")
