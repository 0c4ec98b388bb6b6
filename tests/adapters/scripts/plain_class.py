import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


class Encoder(nn.Module):
    def __init__(self, x_dim, h_dim, z_dim):
        super().__init__()
        self.fc = nn.Linear(x_dim, h_dim)
        self.mu = nn.Linear(h_dim, z_dim)
        self.logvar = nn.Linear(h_dim, z_dim)

    def forward(self, x):
        h = F.relu(self.fc(x))
        return self.mu(h), self.logvar(h)


class VAE:
    """Keeps the two networks and their optimizer together."""

    def __init__(self, x_dim=24, h_dim=32, z_dim=4, lr=4e-3, beta=0.1):
        self.enc = Encoder(x_dim, h_dim, z_dim)
        self.dec = nn.Sequential(nn.Linear(z_dim, h_dim), nn.ReLU(), nn.Linear(h_dim, x_dim))
        self.beta = beta
        self.opt = torch.optim.Adam(list(self.enc.parameters()) + list(self.dec.parameters()), lr=lr)

    def parameters(self):
        yield from self.enc.parameters()
        yield from self.dec.parameters()

    def loss(self, x):
        mu, logvar = self.enc(x)
        z = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu)
        recon = F.mse_loss(self.dec(z), x, reduction="none").sum(dim=1).mean()
        kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(dim=1).mean()
        return recon + self.beta * kl, recon, kl

    def update(self, x):
        loss, recon, kl = self.loss(x)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item(), recon.item(), kl.item()


def synth(n):
    """bumps at random positions on a line"""
    grid = torch.linspace(0, 1, 24)
    centre = torch.rand(n, 1)
    width = 0.05 + 0.1 * torch.rand(n, 1)
    return torch.exp(-0.5 * ((grid - centre) / width) ** 2)


def main():
    torch.manual_seed(88)
    data = synth(512)
    vae = VAE()
    step = 0
    for epoch in range(5):
        for x in data[torch.randperm(len(data))].split(64):
            loss, recon, kl = vae.update(x)
            print(f"step {step} loss {loss!r} recon {recon!r} kl {kl!r}")
            step += 1
    print(f"checksum {sum(p.detach().double().sum().item() for p in vae.parameters())!r}")


main()
