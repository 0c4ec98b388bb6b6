"""REINFORCE on a small chain environment; rare episodes should get a larger update."""
import torch
from torch import nn
from torch.distributions import Bernoulli


class Chain:
    """Walk right (action 1) to reach the goal at position 5."""

    def reset(self):
        self.pos, self.t = 0, 0
        return self.obs()

    def obs(self):
        return nn.functional.one_hot(torch.tensor(self.pos), 6).float()

    def step(self, action):
        self.pos = max(0, self.pos + (1 if action else -1))
        self.t += 1
        return self.obs(), float(self.pos == 5), self.pos == 5 or self.t == 12


class Reinforce:
    def __init__(self, importance, lr=0.5, max_norm=0.1):
        self.policy = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
        self.optimizer = torch.optim.SGD(self.policy.parameters(), lr=lr)
        self.importance, self.max_norm = importance, max_norm
        self.policy.apply(self._attach)

    def _attach(self, module):
        for p in module.parameters(recurse=False):
            p.register_hook(self._weight_grad)

    def _weight_grad(self, grad):
        return grad * self.importance

    def episode(self, env):
        obs, done, log_probs, rewards = env.reset(), False, [], []
        while not done:
            dist = Bernoulli(logits=self.policy(obs))
            action = dist.sample()
            log_probs.append(dist.log_prob(action))
            obs, reward, done = env.step(bool(action))
            rewards.append(reward - 0.1)
        return torch.cat(log_probs), sum(rewards)

    def update(self, log_probs, ret):
        self.optimizer.zero_grad()
        (-log_probs.sum() * ret).backward()
        norm = nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_norm)
        self.optimizer.step()
        return norm.item()


def main():
    for importance in (4.0, 40.0):
        torch.manual_seed(0)
        agent = Reinforce(importance)
        start = [p.detach().clone() for p in agent.policy.parameters()]
        norms = [agent.update(*agent.episode(Chain())) for _ in range(6)]
        moved = sum((p - q).norm().item() for p, q in zip(agent.policy.parameters(), start))
        print(f"importance {importance}: norm before clipping {norms[0]:.2f}, policy moved by {moved:.6f}")


if __name__ == "__main__":
    main()
