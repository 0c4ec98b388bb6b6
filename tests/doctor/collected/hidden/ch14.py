"""Critic with weight and spectral normalisation; hooks sit on the tensors that really are parameters."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

torch.manual_seed(13)


class Critic(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.conv1 = nn.Conv2d(1, c, 3, 2, 1)
        self.conv2 = nn.Conv2d(c, c, 3, 2, 1)
        self.out = nn.Linear(c, 1)
        for layer in (self.conv1, self.conv2):
            nn.init.normal_(layer.weight, 0.0, 0.05)  # before the normalisation takes over
        weight_norm(self.conv1)
        spectral_norm(self.conv2)

    def forward(self, x):
        x = F.leaky_relu(self.conv1(x), 0.2)
        x = F.leaky_relu(self.conv2(x), 0.2)
        return self.out(x.mean((2, 3)))


class Clamp:
    """Keeps the output layer small; put on each optimizer that is created."""

    def __init__(self, layer, limit):
        self.layer, self.limit, self.runs = layer, limit, 0

    def __call__(self, optimizer, args, kwargs):
        self.runs += 1
        self.layer.weight.data.clamp_(-self.limit, self.limit)


def fit(model, opt, steps):
    for _ in range(steps):
        real, fake = torch.randn(8, 1, 12, 12) + 0.5, torch.randn(8, 1, 12, 12)
        loss = model(fake).mean() - model(real).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


model = Critic()
log = {"magnitude": 0, "direction": 0, "original": 0}
model.conv1.parametrizations.weight.original0.register_hook(lambda g: log.update(magnitude=log["magnitude"] + 1))
model.conv1.parametrizations.weight.original1.register_hook(lambda g: log.update(direction=log["direction"] + 1))
# scale the gradient of the spectrally normalised kernel
model.conv2.parametrizations.weight.original.register_hook(lambda g: (log.update(original=log["original"] + 1), 0.5 * g)[1])

clamp = Clamp(model.out, 0.05)
opt = torch.optim.Adam(model.parameters(), lr=0.01)
opt.register_step_post_hook(clamp)
print(f"phase 1 loss {fit(model, opt, 8):.4f}")
opt = torch.optim.SGD(model.parameters(), lr=0.01)
opt.register_step_post_hook(clamp)
print(f"phase 2 loss {fit(model, opt, 8):.4f}")

model.eval()
sigma = torch.linalg.matrix_norm(model.conv2.weight.detach().flatten(1), 2).item()
print(f"spectral norm of conv2 close to one: {abs(sigma - 1) < 0.1}")
print("hook calls", log, "clamps", clamp.runs)
print("largest output weight", round(model.out.weight.abs().max().item(), 4))
assert set(log.values()) == {16} and clamp.runs == 16
