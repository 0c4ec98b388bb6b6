"""GAN critic with self-attention over image patches and spectral normalisation.

Every linear and convolution layer of the critic is spectrally normalised.  After a few
critic updates the program lists how far each normalised layer has moved.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import spectral_norm

torch.manual_seed(12)
torch.set_num_threads(1)


class Critic(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.patch = nn.Conv2d(1, width, 4, stride=4)
        self.attn = nn.MultiheadAttention(width, 2, batch_first=True)
        self.mlp = nn.Linear(width, width)
        self.score = nn.Linear(width, 1)

    def forward(self, x):
        tokens = self.patch(x).flatten(2).transpose(1, 2)
        mixed, _ = self.attn(tokens, tokens, tokens, need_weights=False)
        tokens = tokens + mixed
        tokens = tokens + F.leaky_relu(self.mlp(tokens), 0.2)
        return self.score(tokens.mean(1)).squeeze(1)


class Generator(nn.Module):
    def __init__(self, latent=8):
        super().__init__()
        self.fc = nn.Linear(latent, 16 * 4 * 4)
        self.up = nn.ConvTranspose2d(16, 1, 4, stride=4)

    def forward(self, z):
        return torch.tanh(self.up(F.relu(self.fc(z)).view(-1, 16, 4, 4)))


def normalise(model):
    layers = {}
    for name, module in list(model.named_modules()):
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            spectral_norm(module)
            layers[name] = module
    return layers


def matrix(layer):
    return next(p for p in layer.parameters() if p.dim() > 1)


def real_images(n):
    yy, xx = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    cx, cy = torch.rand(2, n, 1, 1) * 16
    return 2 * torch.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / 12.0).unsqueeze(1) - 1


def main():
    critic, generator = Critic(), Generator()
    layers = normalise(critic)
    start = {name: matrix(layer).detach().clone() for name, layer in layers.items()}
    c_opt = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.0, 0.9))
    g_opt = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.0, 0.9))

    for step in range(60):
        real, fake = real_images(64), generator(torch.randn(64, 8))
        c_loss = F.relu(1 - critic(real)).mean() + F.relu(1 + critic(fake.detach())).mean()
        c_opt.zero_grad()
        c_loss.backward()
        c_opt.step()

        g_loss = -critic(fake).mean()
        g_opt.zero_grad()
        g_loss.backward()
        g_opt.step()
        if step % 20 == 0:
            print(f"step {step:2d} critic {c_loss.item():.3f} generator {g_loss.item():.3f}")

    critic.eval()
    critic(real_images(4))
    for name, layer in layers.items():
        now = matrix(layer).detach()
        moved = (now - start[name]).norm() / start[name].norm()
        largest = torch.linalg.matrix_norm(layer.weight.detach().flatten(1), ord=2)
        print(f"{name:14s} moved {moved.item():.4f}  largest singular value {largest.item():.3f}")


if __name__ == "__main__":
    main()
