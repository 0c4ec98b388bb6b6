"""PPO update with a running observation normaliser as a forward pre-hook."""
import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)


class RunningNorm:
    def __init__(self, module, dim):
        self.mean, self.var, self.n = torch.zeros(dim), torch.ones(dim), 1e-4
        module.register_forward_pre_hook(self)

    def __call__(self, module, args):
        (obs,) = args
        if module.training:
            self.update(obs.detach())
        return ((obs - self.mean) / (self.var + 1e-8).sqrt(),)

    def update(self, x):
        m, v, k = x.mean(0), x.var(0, unbiased=False), x.shape[0]
        tot = self.n + k
        d = m - self.mean
        self.mean = self.mean + d * k / tot
        self.var = (self.var * self.n + v * k + d**2 * self.n * k / tot) / tot
        self.n = tot


policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 3))
norm = RunningNorm(policy, 4)
opt = torch.optim.Adam(policy.parameters(), lr=3e-4)

for it in range(3):
    obs_buf, act_buf, logp_buf = [], [], []
    state = torch.randn(8, 4)
    with torch.no_grad():
        for t in range(32):
            state = 0.95 * state + 0.5 * torch.randn(8, 4) + torch.tensor([0.3, 0.0, -0.2, 0.1]) * t / 8
            dist = Categorical(logits=policy(state))
            act = dist.sample()
            obs_buf.append(state); act_buf.append(act); logp_buf.append(dist.log_prob(act))
    obs, act, old = torch.cat(obs_buf), torch.cat(act_buf), torch.cat(logp_buf)
    adv = torch.randn_like(old)
    for epoch in range(4):
        ratio = (Categorical(logits=policy(obs)).log_prob(act) - old).exp()
        loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
        if epoch == 0:
            clipped = ((ratio - 1).abs() > 0.2).float().mean()
            print(f"iter {it}: first epoch, before any step: ratio {ratio.min():.3f} .. {ratio.max():.3f}, "
                  f"clipped {clipped:.2f}, samples in statistics {norm.n:.0f} of {256 * (it + 1)}")
        opt.zero_grad(); loss.backward(); opt.step()
