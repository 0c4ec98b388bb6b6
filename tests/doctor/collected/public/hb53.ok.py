"""Spectrally normalised GAN with feature matching and an averaged generator."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import spectral_norm, remove_spectral_norm

torch.manual_seed(23)
torch.set_num_threads(1)


class Generator(nn.Module):
    def __init__(self, latent=8, width=16):
        super().__init__()
        self.project = nn.Linear(latent, 2 * width * 16)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 4, 2, 1)
        self.up2 = nn.ConvTranspose2d(width, 1, 4, 2, 1)

    def forward(self, z):
        x = F.relu(self.project(z)).view(len(z), -1, 4, 4)
        return torch.sigmoid(self.up2(F.relu(self.up1(x))))


class Discriminator(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.conv1 = spectral_norm(nn.Conv2d(1, width, 4, 2, 1))
        self.conv2 = spectral_norm(nn.Conv2d(width, 2 * width, 4, 2, 1))
        self.score = spectral_norm(nn.Linear(2 * width * 16, 1))

    def forward(self, x):
        x = F.leaky_relu(self.conv1(x), 0.1)
        x = F.leaky_relu(self.conv2(x), 0.1)
        return self.score(x.flatten(1))


class Matcher:
    """Records the convolution outputs of one pass at a time."""

    def __init__(self, discriminator):
        self.discriminator = discriminator
        self.layers = [discriminator.conv1, discriminator.conv2]

    def features(self, images):
        seen = {}
        handles = [layer.register_forward_hook(lambda module, inputs, output, i=i: seen.update({i: output}))
                   for i, layer in enumerate(self.layers)]
        try:
            score = self.discriminator(images)
        finally:
            for handle in handles:
                handle.remove()
        return score, [seen[i] for i in range(len(self.layers))]

    def loss(self, fake, real):
        with torch.no_grad():
            _, wanted = self.features(real)
        score, got = self.features(fake)
        matching = sum(F.mse_loss(g.mean(0), w.mean(0)) for g, w in zip(got, wanted))
        return matching, score


def real_batch(n):
    ys, xs = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    cy, cx = 5 + 6 * torch.rand(2, n, 1, 1)
    return torch.exp(-((ys - cy) ** 2 + (xs - cx) ** 2) / 8).unsqueeze(1)


def largest_singular_value(layer):
    return torch.linalg.matrix_norm(layer.weight.detach().flatten(1), 2).item()


def main():
    generator, discriminator = Generator(), Discriminator()
    average = copy.deepcopy(generator).requires_grad_(False)
    matcher = Matcher(discriminator)
    opt_g = torch.optim.Adam(generator.parameters(), lr=3e-3, betas=(0.5, 0.9))
    opt_d = torch.optim.Adam(discriminator.parameters(), lr=1e-3, betas=(0.5, 0.9))
    for step in range(120):
        real, fake = real_batch(16), generator(torch.randn(16, 8))
        d_loss = F.relu(1 - discriminator(real)).mean() + F.relu(1 + discriminator(fake.detach())).mean()
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()

        matching, score = matcher.loss(fake, real)
        g_loss = 20 * matching - 0.1 * score.mean()
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()
        with torch.no_grad():
            for a, g in zip(average.parameters(), generator.parameters()):
                a.lerp_(g, 0.1)
        if step % 40 == 39:
            print(f"step {step + 1}: d {d_loss.item():.3f}, matching {matching.item():.5f}")

    with torch.no_grad():
        gap = (average(torch.randn(256, 8)).mean(0) - real_batch(256).mean(0)).abs().mean().item()
        images = real_batch(8)
        discriminator.eval()
        before = discriminator(images)
        for layer in (discriminator.conv1, discriminator.conv2, discriminator.score):
            remove_spectral_norm(layer)
        after = discriminator(images)
    print(f"mean picture: error {gap:.3f}")
    print(f"singular values {[round(largest_singular_value(l), 2) for l in matcher.layers]}")
    print(f"scores unchanged by removing the normalisation: {torch.allclose(before, after, atol=1e-5)}")


if __name__ == "__main__":
    main()
