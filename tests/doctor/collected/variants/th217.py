"""PPO on a toy bandit: the gradient of the logits should be limited in the policy update."""
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.distributions import Categorical


@dataclass
class Rollout:
    obs: torch.Tensor
    actions: torch.Tensor
    log_probs: torch.Tensor
    rewards: torch.Tensor


def limit(stats, bound, grad):
    stats["calls"] += 1
    return grad.clamp(-bound, bound)


class Agent(nn.Module):
    def __init__(self, obs_dim=4, actions=3, bound=1e-4):
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(obs_dim, 16), nn.Tanh(), nn.Linear(16, actions))
        self.stats, self.bound = {"calls": 0}, bound

    def act(self, obs):
        logits = self.policy(obs)
        logits.register_hook(partial(limit, self.stats, self.bound))
        dist = Categorical(logits=logits)
        action = dist.sample()
        return action, dist.log_prob(action).detach()

    def evaluate(self, obs, actions):
        dist = Categorical(logits=self.policy(obs))
        return dist.log_prob(actions), dist.entropy()


class PPO:
    def __init__(self, agent, lr=0.05, clip=0.2, epochs=3):
        self.agent, self.clip, self.epochs = agent, clip, epochs
        self.optimizer = torch.optim.SGD(agent.parameters(), lr=lr)

    def collect(self, n=64):
        obs = torch.randn(n, 4)
        actions, log_probs = self.agent.act(obs)
        return Rollout(obs, actions, log_probs, (actions == (obs[:, 0] > 0).long()).float())

    def update(self, batch):
        advantage = batch.rewards - batch.rewards.mean()
        for _ in range(self.epochs):
            log_probs, entropy = self.agent.evaluate(batch.obs, batch.actions)
            ratio = (log_probs - batch.log_probs).exp()
            surrogate = torch.min(ratio * advantage, ratio.clamp(1 - self.clip, 1 + self.clip) * advantage)
            self.optimizer.zero_grad()
            (-surrogate.mean() - 0.01 * entropy.mean()).backward()
            self.optimizer.step()


if __name__ == "__main__":
    torch.manual_seed(0)
    ppo = PPO(Agent())
    for iteration in range(4):
        rollout = ppo.collect()
        ppo.update(rollout)
        bias_grad = ppo.agent.policy[-1].bias.grad.abs().max().item()
        print(f"iteration {iteration} reward {rollout.rewards.mean().item():.2f} "
              f"limited {ppo.agent.stats['calls']} times, bias gradient {bias_grad:.4f}")
