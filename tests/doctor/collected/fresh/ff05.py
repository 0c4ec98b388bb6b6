"""DQN with noisy exploration: a hook perturbs the action values, a target network gives the TD targets."""
import copy
import torch
from torch import nn

torch.manual_seed(4)


class QNet(nn.Module):
    def __init__(self, obs=6, actions=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs, 32), nn.ReLU())
        self.head = nn.Linear(32, actions)

    def forward(self, x):
        return self.head(self.body(x))


class ExplorationNoise:
    """Adds Gaussian noise to the action values while the agent acts."""

    def __init__(self, sigma):
        self.sigma = sigma
        self.enabled = True

    def __call__(self, module, args, output):
        if self.enabled:
            return output + self.sigma * torch.randn_like(output)


qnet = QNet()
noise = ExplorationNoise(sigma=0.5)
qnet.head.register_forward_hook(noise)

# the target network is never used for acting
target = copy.deepcopy(qnet)
for p in target.parameters():
    p.requires_grad_(False)

opt = torch.optim.Adam(qnet.parameters(), lr=3e-3)
memory = []
state = torch.randn(6)
for t in range(64):
    with torch.no_grad():
        action = qnet(state).argmax().item()
    nxt = 0.8 * state + 0.2 * torch.randn(6)
    memory.append((state, action, float(nxt[action]), nxt))
    state = nxt

noise.enabled = False  # from here on we learn from the memory, without exploration
s = torch.stack([m[0] for m in memory])
a = torch.tensor([m[1] for m in memory])
r = torch.tensor([m[2] for m in memory])
s2 = torch.stack([m[3] for m in memory])


def td_target():
    with torch.no_grad():
        return r + 0.9 * target(s2).max(1).values


for epoch in range(10):
    q = qnet(s).gather(1, a[:, None])[:, 0]
    loss = nn.functional.mse_loss(q, td_target())
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"final loss {loss.item():.4f}")
spread = (td_target() - td_target()).abs().mean().item()
print(f"difference of two evaluations of the targets: {spread:.4f}")
print("targets repeatable:", spread == 0.0)
