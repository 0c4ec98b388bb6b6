"""Dueling double DQN on a slippery grid; the gradient of the shared features is rescaled."""
import copy
import random
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

SIZE = 4
ACTIONS = ((0, 1), (0, -1), (1, 0), (-1, 0))
GAMMA = 0.95


class Grid:
    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        self.cell, self.t = (0, 0), 0
        return self.observe()

    def observe(self):
        return F.one_hot(torch.tensor(self.cell[0] * SIZE + self.cell[1]), SIZE * SIZE).float()

    def step(self, action):
        if self.rng.random() < 0.1:
            action = self.rng.randrange(4)
        dx, dy = ACTIONS[action]
        self.cell = (min(max(self.cell[0] + dx, 0), SIZE - 1), min(max(self.cell[1] + dy, 0), SIZE - 1))
        self.t += 1
        goal = self.cell == (SIZE - 1, SIZE - 1)
        return self.observe(), 1.0 if goal else -0.01, goal, self.t >= 30


class DuelingNet(nn.Module):
    def __init__(self, n_obs=SIZE * SIZE, n_actions=4, hidden=32):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(n_obs, hidden), nn.ReLU())
        self.value = nn.Linear(hidden, 1)
        self.advantage = nn.Linear(hidden, n_actions)

    def forward(self, obs):
        h = self.features(obs)
        if h.requires_grad:
            h.register_hook(lambda grad: grad * 0.5 ** 0.5)
        advantage = self.advantage(h)
        return self.value(h) + advantage - advantage.mean(dim=-1, keepdim=True)


class Agent:
    def __init__(self, rng):
        self.rng = rng
        self.online = DuelingNet()
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=3e-3)
        self.memory = deque(maxlen=2000)

    @torch.no_grad()
    def act(self, obs, epsilon):
        if self.rng.random() < epsilon:
            return self.rng.randrange(4)
        return self.online(obs).argmax().item()

    def learn(self, batch_size=32):
        obs, actions, rewards, following, terminal = zip(*self.rng.sample(list(self.memory), batch_size))
        obs, following = torch.stack(obs), torch.stack(following)
        with torch.no_grad():
            best = self.online(following).argmax(dim=1, keepdim=True)
            future = self.target(following).gather(1, best).squeeze(1)
            goal = torch.tensor(rewards) + GAMMA * future * (1 - torch.tensor(terminal).float())
        q = self.online(obs).gather(1, torch.tensor(actions).unsqueeze(1)).squeeze(1)
        loss = F.smooth_l1_loss(q, goal)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def main():
    torch.manual_seed(2)
    rng = random.Random(2)
    env, agent = Grid(rng), Agent(rng)
    scores, steps = [], 0
    for episode in range(1, 81):
        obs, score, over = env.reset(), 0.0, False
        while not over:
            action = agent.act(obs, epsilon=max(0.05, 1.0 - episode / 40))
            following, reward, terminal, timeout = env.step(action)
            agent.memory.append((obs, action, reward, following, terminal))
            obs, score, over, steps = following, score + reward, terminal or timeout, steps + 1
            if len(agent.memory) >= 64:
                agent.learn()
            if steps % 50 == 0:
                agent.target.load_state_dict(agent.online.state_dict())
        scores.append(score)
        if episode % 20 == 0:
            print(f"episode {episode}  mean score {sum(scores[-20:]) / 20:.3f}")


if __name__ == "__main__":
    main()
