"""Advantage actor-critic with a shared trunk; the critic should only weakly shape the trunk."""
import torch
from torch import nn


class ActorCritic(nn.Module):
    def __init__(self, obs=4, actions=2, hidden=32, critic_share=0.1):
        super().__init__()
        self.critic_share = critic_share
        self.trunk = nn.Sequential(nn.Linear(obs, hidden), nn.Tanh())
        self.heads = nn.ModuleDict({"policy": nn.Linear(hidden, actions), "value": nn.Linear(hidden, 1)})

    def _damp(self, grad):
        return grad * self.critic_share

    def forward(self, obs):
        features = self.trunk(obs)
        dist = torch.distributions.Categorical(logits=self.heads["policy"](features))
        if features.requires_grad:
            features.register_hook(self._damp)
        value = self.heads["value"](features).squeeze(-1)
        return dist, value


def rollout(model, length=64):
    """A bandit-like environment: action 1 is right when the first coordinate is positive."""
    obs = torch.randn(length, 4)
    with torch.no_grad():
        dist, value = model(obs)
    action = dist.sample()
    reward = (action == (obs[:, 0] > 0).long()).float()
    return obs, action, reward, reward - value


def losses(model, batch):
    obs, action, reward, advantage = batch
    dist, value = model(obs)
    policy_loss = -(dist.log_prob(action) * advantage).mean()
    value_loss = nn.functional.mse_loss(value, reward)
    return policy_loss, value_loss


def main():
    torch.manual_seed(0)
    model = ActorCritic()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for update in range(30):
        batch = rollout(model)
        policy_loss, value_loss = losses(model, batch)
        optimizer.zero_grad()
        (policy_loss + value_loss).backward()
        optimizer.step()
        if update % 10 == 0:
            print(f"update {update} mean reward {batch[2].mean().item():.2f}")
    batch = rollout(model)
    for share in (0.1, 1.0):
        model.critic_share = share
        model.zero_grad()
        losses(model, batch)[0].backward()
        print(f"critic share {share}: trunk gradient of the policy loss alone {model.trunk[0].weight.grad.norm():.5f}")


if __name__ == "__main__":
    main()
