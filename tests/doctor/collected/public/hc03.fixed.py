"""Advantage actor-critic on a small corridor world, with a per-layer gradient monitor."""
from collections import defaultdict

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical

torch.set_num_threads(1)

CORRIDOR = 8
GAMMA = 0.97


class Corridor:
    """Walk to the right end; every step costs a little, the goal pays one."""

    def __init__(self, length):
        self.length = length

    def reset(self):
        self.pos, self.t = 0, 0
        return self.observe()

    def observe(self):
        return F.one_hot(torch.tensor(self.pos), self.length).float()

    def step(self, action):
        self.t += 1
        self.pos = max(0, self.pos + (1 if action == 1 else -1))
        done = self.pos == self.length - 1
        return self.observe(), (1.0 if done else -0.02), done or self.t >= 40


class ActorCritic(nn.Module):
    def __init__(self, obs_dim, n_actions, hidden=32):
        super().__init__()
        self.trunk = nn.Linear(obs_dim, hidden)
        self.actor = nn.Linear(hidden, n_actions)
        self.critic = nn.Linear(hidden, 1)

    def forward(self, obs):
        h = torch.tanh(self.trunk(obs))
        return self.actor(h), self.critic(h).squeeze(-1)


class GradientMonitor:
    def __init__(self, model):
        self.norms = defaultdict(list)
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear):
                module.weight.register_post_accumulate_grad_hook(self.make_hook(name))

    def make_hook(self, name):
        def hook(param):
            self.norms[name].append(param.grad.norm().item())
        return hook

    def report(self, names):
        for name in names:
            values = self.norms[name]
            mean = sum(values) / len(values) if values else float("nan")
            print(f"{name:7s} updates seen {len(values):3d}  mean gradient norm {mean:.4f}")


def rollout(env, model):
    obs, observations, actions, rewards, done = env.reset(), [], [], [], False
    while not done:
        with torch.no_grad():
            logits, _ = model(obs.unsqueeze(0))
        action = Categorical(logits=logits).sample().item()
        observations.append(obs)
        actions.append(action)
        obs, reward, done = env.step(action)
        rewards.append(reward)
    returns, g = [], 0.0
    for r in reversed(rewards):
        g = r + GAMMA * g
        returns.insert(0, g)
    return torch.stack(observations), torch.tensor(actions), torch.tensor(returns), sum(rewards)


def main():
    torch.manual_seed(5)
    env, model = Corridor(CORRIDOR), ActorCritic(CORRIDOR, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    monitor = GradientMonitor(model)
    scores = []
    for episode in range(1, 61):
        obs, actions, returns, score = rollout(env, model)
        logits, values = model(obs)
        advantage = returns - values.detach()
        log_prob = Categorical(logits=logits).log_prob(actions)
        loss = -(log_prob * advantage).mean() + 0.5 * F.mse_loss(values, returns)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scores.append(score)
        if episode % 20 == 0:
            print(f"episode {episode}  mean score {sum(scores[-20:]) / 20:.3f}")
    monitor.report(["trunk", "actor", "critic"])


if __name__ == "__main__":
    main()
