"""PPO-style update of a shared actor-critic in which the value head is to learn ten times more slowly."""
import torch
from torch import nn

torch.manual_seed(15)
DAMP = 0.1


class ActorCritic(nn.Module):
    def __init__(self, obs=6, actions=3):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(obs, 32), nn.Tanh())
        self.pi = nn.Linear(32, actions)
        self.value = nn.Linear(32, 1)

    def forward(self, x):
        h = self.trunk(x)
        return self.pi(h).log_softmax(-1), self.value(h)[:, 0]


def slow_head(grad):
    # scale the gradients of the value head before they are stored
    return DAMP * grad


def rollout(net, n=64):
    obs = torch.randn(n, 6)
    with torch.no_grad():
        logp, value = net(obs)
    action = torch.distributions.Categorical(logits=logp).sample()
    ret = 3 * obs[:, 0] + (action == obs[:, :3].argmax(1)).float()
    return obs, action, ret, logp.gather(1, action[:, None])[:, 0], ret - value


def ppo_loss(net, obs, action, ret, old_logp, adv):
    logp, value = net(obs)
    ratio = (logp.gather(1, action[:, None])[:, 0] - old_logp).exp()
    surrogate = torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
    return -surrogate + 0.5 * (ret - value).pow(2).mean()


def grad_norms(net, batch):
    net.zero_grad()
    ppo_loss(net, *batch).backward()
    return {"trunk": net.trunk[0].weight.grad.norm().item(), "value": net.value.weight.grad.norm().item()}


net = ActorCritic()
batch = rollout(net)
plain = grad_norms(net, batch)
for p in net.value.parameters():
    p.register_hook(slow_head)
damped = grad_norms(net, batch)

opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for epoch in range(6):
    loss = ppo_loss(net, *batch)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"loss after 6 epochs {loss.item():.4f}")
for part in plain:
    print(f"{part:5s} weight gradient {plain[part]:.4f} -> {damped[part]:.4f}  factor {damped[part] / plain[part]:.3f}")
