"""Load a version-1 checkpoint into the version-2 policy network and evaluate it."""
import io

import torch
from torch import nn


class PolicyV1(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 16)
        self.out = nn.Linear(16, 2)

    def forward(self, obs):
        return self.out(torch.tanh(self.fc(obs)))


class PolicyV2(nn.Module):
    RENAMED = {"fc.": "trunk.", "out.": "actor."}

    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(6, 16)
        self.actor = nn.Linear(16, 2)
        self.register_load_state_dict_pre_hook(self._upgrade_v1)

    def _upgrade_v1(self, module, state_dict, prefix, metadata, strict, missing, unexpected, errors):
        upgraded = {}
        for key, value in state_dict.items():
            name = key[len(prefix):]
            for old, new in self.RENAMED.items():
                if name.startswith(old):
                    name = new + name[len(old):]
            upgraded[prefix + name] = value
        return upgraded

    def forward(self, obs):
        return self.actor(torch.tanh(self.trunk(obs)))


def train_v1(steps=150):
    policy = PolicyV1()
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
    for _ in range(steps):
        obs = torch.randn(32, 6)
        expert = (obs.sum(dim=1) > 0).long()
        loss = nn.functional.cross_entropy(policy(obs), expert)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return policy


@torch.no_grad()
def accuracy(policy, obs):
    return (policy(obs).argmax(dim=1) == (obs.sum(dim=1) > 0).long()).float().mean().item()


if __name__ == "__main__":
    torch.manual_seed(3)
    old = train_v1()
    buffer = io.BytesIO()
    torch.save(old.state_dict(), buffer)
    buffer.seek(0)
    new = PolicyV2()
    new.load_state_dict(torch.load(buffer), strict=False)
    obs = torch.randn(500, 6)
    print(f"accuracy of the trained policy {accuracy(old, obs):.2f}")
    print(f"accuracy after loading it      {accuracy(new, obs):.2f}")
