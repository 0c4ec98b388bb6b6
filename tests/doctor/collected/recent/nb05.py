"""A small GAN on a ring of points, trained with the optimizer step fused into backward.

Every parameter owns a tiny Adam that steps as soon as its gradient is ready and frees
the gradient at once, which keeps the memory for gradients near zero.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(4)
torch.set_num_threads(1)

LATENT = 4
STEPS = 150


def mlp(cin, cout, width=32):
    return nn.Sequential(
        nn.Linear(cin, width), nn.LeakyReLU(0.2),
        nn.Linear(width, width), nn.LeakyReLU(0.2),
        nn.Linear(width, cout),
    )


def fuse_optimizer(module, lr):
    optimizers = {p: torch.optim.Adam([p], lr=lr, betas=(0.5, 0.99)) for p in module.parameters()}

    def step(param):
        optimizers[param].step()
        optimizers[param].zero_grad()

    for p in module.parameters():
        p.register_post_accumulate_grad_hook(step)
    return optimizers


def steps_taken(optimizers):
    return max(int(o.state[p]["step"]) for p, o in optimizers.items())


def real_batch(n):
    angle = torch.rand(n) * 2 * math.pi
    radius = 1.0 + 0.05 * torch.randn(n)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1)


def discriminator_loss(disc, real, fake):
    on_real = disc(real)
    on_fake = disc(fake)
    return (F.binary_cross_entropy_with_logits(on_real, torch.ones_like(on_real))
            + F.binary_cross_entropy_with_logits(on_fake, torch.zeros_like(on_fake)))


def generator_loss(disc, fake):
    score = disc(fake)
    return F.binary_cross_entropy_with_logits(score, torch.ones_like(score))


def main():
    gen, disc = mlp(LATENT, 2), mlp(2, 1)
    gen_opt = fuse_optimizer(gen, lr=2e-3)
    disc_opt = fuse_optimizer(disc, lr=2e-3)

    for step in range(STEPS):
        real = real_batch(128)
        fake = gen(torch.randn(128, LATENT))

        d_loss = discriminator_loss(disc, real, fake.detach())
        d_loss.backward()

        g_loss = generator_loss(disc, fake)
        g_loss.backward()

        if step % 50 == 0:
            print(f"step {step:3d} d_loss {d_loss.item():.3f} g_loss {g_loss.item():.3f}")

    with torch.no_grad():
        real, fake = real_batch(1000), gen(torch.randn(1000, LATENT))
        right = (disc(real) > 0).float().mean() + (disc(fake) < 0).float().mean()
        spread = (fake.norm(dim=1) - 1.0).abs().mean()
    print(f"discriminator: right on {right.item() / 2:.3f} of the samples")
    print(f"generator: mean distance from the ring {spread.item():.3f}")
    print(f"updates per iteration: generator {steps_taken(gen_opt) / STEPS:.1f},"
          f" discriminator {steps_taken(disc_opt) / STEPS:.1f}")


if __name__ == "__main__":
    main()
