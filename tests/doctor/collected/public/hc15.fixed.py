"""PPO on a two-dimensional reaching task, trained in curriculum stages with one shared policy."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Normal

torch.set_num_threads(1)
torch.manual_seed(31)

N_ENVS = 64
HORIZON = 12
CLIP_RANGE = 0.2
TRUNK_SCALE = 0.5


class ReachEnv:
    """Move a point towards a goal; the goals lie further away in later stages."""

    def __init__(self, radius, generator):
        self.radius, self.gen = radius, generator

    def reset(self):
        angle = 6.2832 * torch.rand(N_ENVS, generator=self.gen)
        self.goal = self.radius * torch.stack([angle.cos(), angle.sin()], dim=1)
        self.pos = torch.zeros(N_ENVS, 2)
        return self.goal - self.pos

    def step(self, action):
        self.pos = self.pos + 0.2 * action.clamp(-1, 1)
        offset = self.goal - self.pos
        return offset, -offset.norm(dim=1)


class Policy(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(2, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.mean = nn.Linear(hidden, 2)
        self.value = nn.Linear(hidden, 1)
        self.log_std = nn.Parameter(torch.full((2,), -0.7))

    def forward(self, obs):
        h = self.trunk(obs)
        return Normal(self.mean(h), self.log_std.exp()), self.value(h).squeeze(-1)


class PPOTrainer:
    def __init__(self, policy, env, lr=0.02):
        self.policy, self.env = policy, env
        self.optimizer = torch.optim.SGD(policy.parameters(), lr=lr, momentum=0.9)
        self.handles = [p.register_hook(lambda grad: TRUNK_SCALE * grad) for p in policy.trunk.parameters()]

    def close(self):
        for handle in self.handles:
            handle.remove()

    @torch.no_grad()
    def collect(self, gen):
        obs, data = self.env.reset(), []
        for _ in range(HORIZON):
            dist, _ = self.policy(obs)
            action = dist.mean + dist.stddev * torch.randn(dist.mean.shape, generator=gen)
            next_obs, reward = self.env.step(action)
            data.append((obs, action, dist.log_prob(action).sum(-1), reward))
            obs = next_obs
        obs, actions, log_probs, rewards = (torch.stack(column) for column in zip(*data))
        returns = rewards.flip(0).cumsum(0).flip(0) / HORIZON
        return obs.flatten(0, 1), actions.flatten(0, 1), log_probs.flatten(), returns.flatten()

    def update(self, batch, epochs=4):
        obs, actions, old_log_probs, returns = batch
        for _ in range(epochs):
            dist, values = self.policy(obs)
            advantage = returns - values.detach()
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            ratio = (dist.log_prob(actions).sum(-1) - old_log_probs).exp()
            clipped = ratio.clamp(1 - CLIP_RANGE, 1 + CLIP_RANGE)
            loss = -torch.min(ratio * advantage, clipped * advantage).mean()
            loss = loss + 0.5 * F.mse_loss(values, returns)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


def main():
    gen = torch.Generator().manual_seed(1)
    policy = Policy()
    for stage, radius in enumerate((0.5, 0.8, 1.1, 1.4, 1.7, 2.0)):
        trainer = PPOTrainer(policy, ReachEnv(radius, gen))
        start = nn.utils.parameters_to_vector(policy.trunk.parameters()).detach().clone()
        for _ in range(12):
            batch = trainer.collect(gen)
            trainer.update(batch)
        trainer.close()
        moved = (nn.utils.parameters_to_vector(policy.trunk.parameters()).detach() - start).norm()
        print(f"stage {stage}  return {batch[3][:N_ENVS].mean().item():.3f}  trunk moved {moved.item():.4f}")


if __name__ == "__main__":
    main()
