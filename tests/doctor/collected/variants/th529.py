"""Q-learning from a replay buffer; observations are standardised before they enter the network."""
import torch
from torch import nn


class ReplayBuffer:
    def __init__(self, size, obs_dim):
        self.obs = torch.randn(size, obs_dim) * 5 + 20
        self.action = torch.randint(2, (size,))
        self.reward = (self.obs[:, 0] > 20).float()

    def minibatches(self, size):
        for start in range(0, len(self.obs), size):
            chunk = slice(start, start + size)
            yield self.obs[chunk], self.action[chunk], self.reward[chunk]


class InputNormalizer:
    def __init__(self, mean, std):
        self.mean, self.std = mean, std

    def attach(self, network):
        self.handle = network.register_forward_pre_hook(self.normalize)
        return self

    def normalize(self, module, args):
        (obs,) = args
        obs.sub_(self.mean).div_(self.std)


class QNetwork(nn.Module):
    def __init__(self, obs_dim, actions=2):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, 32), nn.ReLU())
        self.q = nn.Linear(32, actions)

    def forward(self, obs):
        return self.q(self.body(obs))


class Agent:
    def __init__(self, obs_dim, buffer):
        self.network = QNetwork(obs_dim)
        self.normalizer = InputNormalizer(buffer.obs.mean(0), buffer.obs.std(0)).attach(self.network)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=1e-2)

    def learn(self, buffer):
        for obs, action, reward in buffer.minibatches(32):
            q = self.network(obs).gather(1, action[:, None]).squeeze(1)
            loss = nn.functional.smooth_l1_loss(q, reward)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    buffer = ReplayBuffer(256, 4)
    agent = Agent(4, buffer)
    print(f"start   buffer mean {buffer.obs.mean().item():8.3f} std {buffer.obs.std().item():.4f}")
    for epoch in range(4):
        loss = agent.learn(buffer)
        print(f"epoch {epoch} buffer mean {buffer.obs.mean().item():8.3f} std {buffer.obs.std().item():.4f} loss {loss:.4f}")
