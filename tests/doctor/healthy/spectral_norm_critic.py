"""A critic with spectral norm in the old way (a pre hook) and the new (a parametrization), taken off at the end."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize, remove_spectral_norm, spectral_norm

critic = nn.Sequential(
    spectral_norm(nn.Conv1d(1, 8, 5)), nn.LeakyReLU(0.1), nn.Flatten(), parametrizations.spectral_norm(nn.Linear(96, 1))
)
largest = []


def measure(module, args, output):
    largest.append(torch.linalg.matrix_norm(module.weight.detach().flatten(1), 2))


critic[0].register_forward_hook(measure)
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-2)
losses = []
for step in range(6):
    real, fake = torch.randn(16, 1, 16).cumsum(dim=2), torch.randn(16, 1, 16)
    loss = F.relu(1 - critic(real)).mean() + F.relu(1 + critic(fake)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
critic.eval()
remove_spectral_norm(critic[0])
parametrize.remove_parametrizations(critic[3], "weight")
result = [losses, largest, list(critic.state_dict().values())]
