"""GAN whose discriminator updates are clipped per tensor by hooks; the hooks
are in place only while the discriminator itself is trained."""
from contextlib import contextmanager

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(79)


class Discriminator(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2))
        self.score = nn.Linear(width, 1)

    def forward(self, x):
        return self.score(self.body(x)).squeeze(1)


class Generator(nn.Module):
    def __init__(self, latent=3, width=32):
        super().__init__()
        self.latent = latent
        self.net = nn.Sequential(nn.Linear(latent, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                                 nn.Linear(width, 2))

    def forward(self, n):
        return self.net(torch.randn(n, self.latent))


class ClipCounter:
    def __init__(self, limit):
        self.limit = limit
        self.seen = 0
        self.clipped = 0

    def __call__(self, grad):
        self.seen += 1
        norm = grad.norm()
        if norm <= self.limit:
            return None
        self.clipped += 1
        return grad * (self.limit / norm)


@contextmanager
def clipped_gradients(module, hook):
    handles = [p.register_hook(hook) for p in module.parameters()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def frozen(module):
    module.requires_grad_(False)
    try:
        yield
    finally:
        module.requires_grad_(True)


def real_batch(n, generator):
    component = torch.randint(0, 4, (n,), generator=generator)
    angle = component * (torch.pi / 2)
    centers = torch.stack([angle.cos(), angle.sin()], dim=1)
    return centers + 0.1 * torch.randn(n, 2, generator=generator)


def main():
    source = torch.Generator().manual_seed(0)
    generator, discriminator = Generator(), Discriminator()
    g_opt = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.9))
    d_opt = torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.5, 0.9))
    clip = ClipCounter(limit=0.05)
    steps = 120
    for step in range(steps):
        real = real_batch(64, source)
        with torch.no_grad():
            fake = generator(64)
        d_opt.zero_grad()
        with clipped_gradients(discriminator, clip):
            d_loss = F.softplus(-discriminator(real)).mean() + F.softplus(discriminator(fake)).mean()
            d_loss.backward()
        d_opt.step()

        g_opt.zero_grad()
        with frozen(discriminator):
            g_loss = F.softplus(-discriminator(generator(64))).mean()
            g_loss.backward()
        g_opt.step()
        if step % 40 == 39:
            print(f"step {step + 1}: discriminator {d_loss.item():.3f}, generator {g_loss.item():.3f}")

    tensors = sum(1 for _ in discriminator.parameters())
    print(f"gradients seen {clip.seen} ({tensors} tensors x {steps} steps), clipped {clip.clipped}")
    with torch.no_grad():
        spread = generator(256).std(dim=0)
    print(f"spread of the samples {spread[0].item():.3f} {spread[1].item():.3f}")


if __name__ == "__main__":
    main()
