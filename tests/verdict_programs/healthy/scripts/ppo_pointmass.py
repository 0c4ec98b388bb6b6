"""PPO with value head, entropy bonus and gradient clipping on a point mass that has to reach a target."""

import hashlib

import torch
from torch import nn
from torch.distributions import Normal


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


torch.set_num_threads(1)
torch.manual_seed(7)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh())
        self.mean, self.value = nn.Linear(48, 2), nn.Linear(48, 1)
        self.log_std = nn.Parameter(torch.zeros(2))
        nn.init.zeros_(self.mean.weight)

    def forward(self, obs):
        h = self.body(obs)
        return Normal(self.mean(h), self.log_std.exp()), self.value(h)[..., 0]


net = ActorCritic()
opt = torch.optim.Adam(net.parameters(), lr=3e-3, eps=1e-5)
history = []
for _iteration in range(60):
    obs = torch.randn(32, 4)
    store = []
    with torch.no_grad():
        for _t in range(16):
            dist, value = net(obs)
            act = dist.sample()
            vel = 0.8 * obs[:, 2:] + 0.3 * act.clamp(-2, 2)
            pos = obs[:, :2] + 0.3 * vel
            reward = -0.1 * pos.norm(dim=1)
            store.append((obs, act, dist.log_prob(act).sum(1), value, reward))
            obs = torch.cat([pos, vel], 1)
        last = net(obs)[1]
        adv, advs = torch.zeros(32), []
        for _o, _a, _l, value, reward in reversed(store):
            delta = reward + 0.95 * last - value
            adv = delta + 0.95 * 0.9 * adv
            advs.append(adv)
            last = value
        advs.reverse()
    o, a, lp, v, r = (torch.cat(items) for items in zip(*store))
    adv = torch.cat(advs)
    ret = adv + v
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    history.append(r.mean().item())
    for _epoch in range(4):
        for idx in torch.randperm(len(o)).split(128):
            dist, value = net(o[idx])
            ratio = (dist.log_prob(a[idx]).sum(1) - lp[idx]).exp()
            policy = -torch.min(ratio * adv[idx], ratio.clamp(0.8, 1.2) * adv[idx]).mean()
            loss = policy + 0.5 * (value - ret[idx]).pow(2).mean() - 0.001 * dist.entropy().mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            opt.step()
print(f"reward {history[0]:.3f} -> {history[-1]:.3f}")
assert history[-1] > 0.6 * history[0]
print("digest", digest(net))
