"""Sequence VAE on noisy signals; the gradient that enters the encoder through the latent code is clipped per sample."""
import torch
from torch import nn

torch.manual_seed(27)
LIMIT = 0.02


class SignalVAE(nn.Module):
    def __init__(self, length=24, z=4, width=48):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(length, width), nn.ELU(), nn.Linear(width, 2 * z))
        self.decoder = nn.Sequential(nn.Linear(z, width), nn.ELU(), nn.Linear(width, length))

    def encode(self, x):
        mu, logvar = self.encoder(x).chunk(2, dim=1)
        return mu, logvar.clamp(-6, 4)

    def sample(self, mu, logvar):
        return mu + torch.randn_like(mu) * (0.5 * logvar).exp()


class LatentClip:
    """Scales the gradient of each latent code down to `limit` and counts how often that was needed."""

    def __init__(self, limit):
        self.limit = limit
        self.codes = self.clipped = 0

    def __call__(self, grad):
        norm = grad.norm(dim=1, keepdim=True)
        self.codes += len(grad)
        self.clipped += int((norm > self.limit).sum())
        return grad * (self.limit / norm.clamp_min(1e-12)).clamp(max=1.0)


def compute_loss(vae, x, clip):
    mu, logvar = vae.encode(x)
    z = vae.sample(mu, logvar)
    # the hook belongs to this batch only
    with z.register_hook(clip):
        recon = vae.decoder(z)
        rec_loss = (recon - x).pow(2).sum(dim=1).mean()
        kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(dim=1).mean()
        loss = rec_loss + 0.1 * kl
    return loss, rec_loss.item()


t = torch.linspace(0, 6.28, 24)
phase, freq = torch.rand(384, 1) * 6.28, 1 + torch.rand(384, 1)
signals = 3 * torch.sin(freq * t + phase) + 0.1 * torch.randn(384, 24)

vae = SignalVAE()
clip = LatentClip(LIMIT)
optimizer = torch.optim.Adam(vae.parameters(), lr=2e-3)
for epoch in range(8):
    for i in range(0, 384, 48):
        loss, rec = compute_loss(vae, signals[i:i + 48], clip)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch % 2 == 1:
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}  reconstruction {rec:.3f}")

print(f"latent codes seen by the clip: {clip.codes}, clipped: {clip.clipped}")
