"""A variational autoencoder with a second head that predicts the mean of the picture."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="")
parser.add_argument("--keep-zeros", action="store_true", help="zero_grad(set_to_none=False)")
args = parser.parse_args()
plant = args.plant


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU())
        self.mu = nn.Linear(32, 6)
        self.logvar = nn.Linear(32, 6)

    def forward(self, x):
        h = self.body(x)
        return self.mu(h), self.logvar(h)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.decoder = nn.Sequential(nn.Linear(6, 32), nn.SiLU(), nn.Linear(32, 64))
        self.side = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x, noise, detach=False):
        mu, logvar = self.encoder(x)
        if noise is None:
            noise = torch.randn_like(mu)
        z = mu + noise * (0.5 * logvar).exp()
        side = self.side(mu.detach() if detach else mu)
        return self.decoder(z), side, mu, logvar


torch.manual_seed(31)
vae = VAE()
optim = torch.optim.RMSprop(vae.parameters(), lr=1e-3)
pictures = torch.rand(128, 64, generator=torch.Generator().manual_seed(32))
for step in range(8):
    x = pictures[step * 16 : (step + 1) * 16]
    if plant == "noise" and step == 4:
        torch.manual_seed(77)
    detach = plant == "detach" and step >= 3
    out, side, mu, logvar = vae(x, None, detach)
    kl = -0.5 * (1 + logvar - mu.square() - logvar.exp()).mean()
    weight = 0.101 if plant == "kl" and step >= 2 else 0.1
    goal = x.mean(1, keepdim=True)
    prediction = side.detach() if plant == "side-detach" and step == 5 else side
    loss = F.binary_cross_entropy_with_logits(out, x) + weight * kl + F.mse_loss(prediction, goal)
    optim.zero_grad(set_to_none=not args.keep_zeros)
    loss.backward()
    if plant == "mu-grad" and step == 6:
        vae.encoder.mu.bias.grad[2] = torch.nextafter(vae.encoder.mu.bias.grad[2], torch.tensor(1.0))
    optim.step()
    print(f"{step} {loss.item():.7f}")
