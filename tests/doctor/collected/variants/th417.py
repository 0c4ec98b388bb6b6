"""Actor and critic over a common encoder; an episodic memory of the actor's embeddings gives a novelty bonus."""
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, obs=6, dim=8):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(obs, 16), nn.ELU(), nn.Linear(16, dim))

    def forward(self, obs):
        return self.net(obs)


class Actor(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder
        self.logits = nn.Linear(8, 3)

    def forward(self, obs):
        return torch.distributions.Categorical(logits=self.logits(self.encoder(obs)))


class Critic(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder
        self.value = nn.Linear(8, 1)

    def forward(self, obs):
        return self.value(self.encoder(obs)).squeeze(-1)


class EpisodicMemory:
    def __init__(self, actor):
        self.embeddings = []
        self.handle = actor.encoder.register_forward_hook(self.store)

    def store(self, module, args, output):
        self.embeddings.append(output.detach().clone())

    def bonus(self):
        """Distance of the newest embedding to its nearest neighbour in the memory."""
        if len(self.embeddings) < 2:
            return 1.0
        past = torch.cat(self.embeddings[:-1])
        return torch.cdist(self.embeddings[-1], past).min().item()


def main():
    torch.manual_seed(0)
    encoder = Encoder()
    actor, critic = Actor(encoder), Critic(encoder)
    memory = EpisodicMemory(actor)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.value.parameters()], lr=1e-3)
    for step in range(6):
        obs = torch.randn(1, 6)
        dist, value = actor(obs), critic(obs)
        action = dist.sample()
        reward = memory.bonus()
        loss = -dist.log_prob(action) * (reward - value.detach()) + (reward - value).pow(2)
        optimizer.zero_grad()
        loss.sum().backward()
        optimizer.step()
        print(f"step {step} memory size {len(memory.embeddings)} novelty bonus {reward:.4f}")


if __name__ == "__main__":
    main()
