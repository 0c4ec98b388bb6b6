"""GAN on a ring of Gaussians; annealed noise is added to the discriminator's gradients."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(19)
torch.set_num_threads(1)


def mlp(inputs, hidden, outputs):
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.LeakyReLU(0.2),
        nn.Linear(hidden, hidden), nn.LeakyReLU(0.2),
        nn.Linear(hidden, outputs),
    )


class GradientNoise:
    """Gaussian gradient noise with variance eta / (1 + t) ** 0.55, t being the update."""

    def __init__(self, module, eta=0.01):
        self.eta = eta
        self.params = list(module.parameters())
        self.calls = 0
        self.generator = torch.Generator().manual_seed(23)
        self.handles = [p.register_hook(self.perturb) for p in self.params]

    @property
    def update(self):
        return self.calls // len(self.params)

    @property
    def sigma(self):
        return math.sqrt(self.eta / (1 + self.update) ** 0.55)

    def perturb(self, grad):
        noise = torch.randn(grad.shape, generator=self.generator)
        noisy = grad + self.sigma * noise
        self.calls += 1
        return noisy

    def close(self):
        for handle in self.handles:
            handle.remove()


class GanTrainer:
    def __init__(self, latent=6):
        self.latent = latent
        self.generator = mlp(latent, 32, 2)
        self.discriminator = mlp(2, 32, 1)
        self.g_optimizer = torch.optim.Adam(self.generator.parameters(), lr=2e-3, betas=(0.5, 0.9))
        self.d_optimizer = torch.optim.Adam(self.discriminator.parameters(), lr=2e-3, betas=(0.5, 0.9))
        self.noise = GradientNoise(self.discriminator)

    def discriminator_step(self, real):
        fake = self.generator(torch.randn(len(real), self.latent)).detach()
        self.d_optimizer.zero_grad()
        loss = F.softplus(-self.discriminator(real)).mean() + F.softplus(self.discriminator(fake)).mean()
        loss.backward()
        self.d_optimizer.step()
        return loss.item()

    def generator_step(self, count):
        fake = self.generator(torch.randn(count, self.latent))
        self.g_optimizer.zero_grad()
        self.discriminator.requires_grad_(False)
        loss = F.softplus(-self.discriminator(fake)).mean()
        loss.backward()
        self.discriminator.requires_grad_(True)
        self.g_optimizer.step()
        return loss.item()


def ring(count, modes=6):
    angle = torch.randint(0, modes, (count,)) * (2 * math.pi / modes)
    centers = torch.stack([angle.cos(), angle.sin()], dim=1) * 2
    return centers + 0.1 * torch.randn(count, 2)


def main():
    trainer = GanTrainer()
    rounds = 120
    for step in range(rounds):
        d_loss = trainer.discriminator_step(ring(64))
        g_loss = trainer.generator_step(64)
        if step % 40 == 39:
            print(f"round {step + 1}: d loss {d_loss:.3f}  g loss {g_loss:.3f}")
    trainer.noise.close()
    print(f"discriminator updates: {rounds}")
    print(f"noise schedule is at update {trainer.noise.update}, sigma {trainer.noise.sigma:.4f}")


if __name__ == "__main__":
    main()
