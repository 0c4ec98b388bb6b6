"""Save without a buffer, load an old checkpoint with other names, and go on training: state dict hooks do both."""

import tempfile
from pathlib import Path

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(5, 16)
        self.head = nn.Linear(16, 1)
        self.register_buffer("cache", torch.zeros(100))
        self.register_state_dict_post_hook(self.drop_cache)
        self.register_load_state_dict_pre_hook(self.rename_old_keys)
        self.register_load_state_dict_post_hook(self.forgive_cache)

    @staticmethod
    def drop_cache(module, state_dict, prefix, local_metadata):
        state_dict.pop(prefix + "cache", None)

    @staticmethod
    def rename_old_keys(module, state_dict, prefix, local_metadata, strict, missing, unexpected, errors):
        for key in list(state_dict):
            if key.startswith(prefix + "backbone."):
                state_dict[key.replace("backbone.", "encoder.")] = state_dict.pop(key)

    @staticmethod
    def forgive_cache(module, incompatible):
        incompatible.missing_keys[:] = [key for key in incompatible.missing_keys if key != "cache"]

    def forward(self, x):
        return self.head(torch.relu(self.encoder(x)))


def train(model, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        x = torch.randn(16, 5)
        loss = (model(x) - x.sum(dim=1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


losses = []
model = Net()
train(model, 4)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "model.pt"
    old = {key.replace("encoder.", "backbone."): value for key, value in model.state_dict().items()}
    torch.save(old, path)
    resumed = Net()
    resumed.load_state_dict(torch.load(path))
train(resumed, 4)
result = [losses, dict(resumed.state_dict())]
