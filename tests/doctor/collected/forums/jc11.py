"""A small GAN on 2-d data.  The gradient norms of the discriminator updates
are collected to choose a clipping threshold for a later private run."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(23)


def mlp(sizes):
    layers = []
    for a, b in zip(sizes[:-1], sizes[1:]):
        layers += [nn.Linear(a, b), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers[:-1])


class GradientNorms:
    def __init__(self, module):
        self.norms = {name: [] for name, _ in module.named_parameters()}
        self.handles = [p.register_hook(self.recorder(name)) for name, p in module.named_parameters()]

    def recorder(self, name):
        def record(grad):
            self.norms[name].append(grad.norm().item())
        return record

    def median(self):
        values = torch.tensor([v for norms in self.norms.values() for v in norms])
        return values.median().item()

    def per_tensor(self):
        return sum(len(v) for v in self.norms.values()) / len(self.norms)

    def close(self):
        for handle in self.handles:
            handle.remove()


class GANTrainer:
    def __init__(self, latent=4):
        self.latent = latent
        self.generator = mlp([latent, 32, 32, 2])
        self.discriminator = mlp([2, 32, 32, 1])
        self.g_opt = torch.optim.Adam(self.generator.parameters(), lr=1e-3, betas=(0.5, 0.99))
        self.d_opt = torch.optim.Adam(self.discriminator.parameters(), lr=1e-3, betas=(0.5, 0.99))
        self.norms = GradientNorms(self.discriminator)
        self.updates = 0

    def sample(self, n):
        return self.generator(torch.randn(n, self.latent))

    def discriminator_step(self, real):
        with torch.no_grad():
            fake = self.sample(len(real))
        logits = self.discriminator(torch.cat([real, fake])).squeeze(1)
        target = torch.cat([torch.ones(len(real)), torch.zeros(len(fake))])
        loss = F.binary_cross_entropy_with_logits(logits, target)
        self.d_opt.zero_grad()
        loss.backward()
        self.d_opt.step()
        self.updates += 1
        return loss.item()

    def generator_step(self, n):
        logits = self.discriminator(self.sample(n)).squeeze(1)
        loss = F.binary_cross_entropy_with_logits(logits, torch.ones(n))
        self.g_opt.zero_grad()
        loss.backward()
        self.g_opt.step()
        return loss.item()


def ring(n, generator):
    angle = 2 * torch.pi * torch.rand(n, generator=generator)
    radius = 2.0 + 0.1 * torch.randn(n, generator=generator)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)


def main():
    generator = torch.Generator().manual_seed(0)
    trainer = GANTrainer()
    for step in range(120):
        d_loss = trainer.discriminator_step(ring(64, generator))
        g_loss = trainer.generator_step(64)
        if step % 40 == 39:
            print(f"step {step + 1}: discriminator {d_loss:.3f}, generator {g_loss:.3f}")
    trainer.norms.close()
    print(f"norms recorded per discriminator update and tensor: "
          f"{trainer.norms.per_tensor() / trainer.updates:.1f}")
    print(f"suggested clipping threshold: {trainer.norms.median():.5f}")


if __name__ == "__main__":
    main()
