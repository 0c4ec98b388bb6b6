"""Actor-critic with a warm-up: for the first updates only trunk and critic learn, the cloned policy head is kept."""
import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(5)
WARMUP, UPDATES = 15, 40


class ActorCritic(nn.Module):
    def __init__(self, obs=6, actions=3):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(obs, 32), nn.Tanh())
        self.policy = nn.Linear(32, actions)
        self.value = nn.Linear(32, 1)

    def forward(self, obs):
        h = self.trunk(obs)
        return Categorical(logits=self.policy(h)), self.value(h).squeeze(-1)


class WarmupGate:
    """While closed, nothing is learned through the layer it sits on."""

    def __init__(self, layer):
        self.closed = True
        self.blocked = 0
        layer.register_full_backward_pre_hook(self.gate)

    def gate(self, module, grad_output):
        if self.closed:
            self.blocked += 1
            return tuple(torch.zeros_like(g) for g in grad_output)


def rollout(agent, n=64):
    obs = torch.randn(n, 6)
    with torch.no_grad():
        dist, _ = agent(obs)
        act = dist.sample()
    reward = torch.where(act == obs[:, :3].argmax(dim=1), 1.0, -0.2) + 0.1 * torch.randn(n)
    return obs, act, reward


agent = ActorCritic()
gate = WarmupGate(agent.policy)
start = agent.policy.weight.detach().clone()
optimizer = torch.optim.Adam(agent.parameters(), lr=1e-2)

for update in range(UPDATES):
    if update == WARMUP:
        moved = (agent.policy.weight.detach() - start).abs().max().item()
        print(f"end of warm-up: gate closed {gate.blocked} times, policy head moved by {moved:.4f}")
        gate.closed = False
    obs, act, reward = rollout(agent)
    dist, value = agent(obs)
    advantage = reward - value.detach()
    loss_pi = -(dist.log_prob(act) * advantage).mean() - 0.01 * dist.entropy().mean()
    loss_v = (reward - value).pow(2).mean()
    optimizer.zero_grad()
    (loss_pi + 0.5 * loss_v).backward()
    optimizer.step()
    if update % 10 == 9:
        print(f"update {update + 1}: reward {reward.mean():.3f}  value loss {loss_v.item():.3f}")

obs, act, reward = rollout(agent, 1000)
print(f"average reward at the end {reward.mean():.2f}")
