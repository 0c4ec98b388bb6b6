"""Super-resolution GAN whose generator is mostly driven by a feature matching loss."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(10)
torch.set_num_threads(1)


class Generator(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1), nn.LeakyReLU(0.2),
            nn.Conv2d(width, width, 3, padding=1), nn.LeakyReLU(0.2),
            nn.Conv2d(width, 12, 3, padding=1), nn.PixelShuffle(2),
        )

    def forward(self, x):
        return self.net(x)


class Discriminator(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.block1 = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1), nn.LeakyReLU(0.2))
        self.block2 = nn.Sequential(nn.Conv2d(width, width, 4, 2, 1), nn.LeakyReLU(0.2))
        self.block3 = nn.Sequential(nn.Conv2d(width, 2 * width, 4, 2, 1), nn.LeakyReLU(0.2))
        self.out = nn.Conv2d(2 * width, 1, 3, padding=1)

    def forward(self, x):
        return self.out(self.block3(self.block2(self.block1(x))))


class FeatureTap:
    def __init__(self, *layers):
        self.layers = layers
        self.maps = []

    def __enter__(self):
        self.handles = [layer.register_forward_hook(self.save) for layer in self.layers]
        return self

    def __exit__(self, *exc):
        for handle in self.handles:
            handle.remove()
        self.maps = []

    def save(self, module, inputs, output):
        self.maps.append(output)

    def take(self):
        maps, self.maps = self.maps, []
        return maps


def generator_loss(discriminator, tap, fake, real):
    with tap:
        with torch.no_grad():
            discriminator(real)
        wanted = tap.take()
        score = discriminator(fake)
        got = tap.take()
    matching = sum(F.l1_loss(g, w) for g, w in zip(got, wanted))
    adversarial = F.softplus(-score).mean()
    return 10 * matching + 0.001 * adversarial, matching


def discriminator_loss(discriminator, fake, real):
    return F.softplus(discriminator(fake.detach())).mean() + F.softplus(-discriminator(real)).mean()


def batch(n):
    high = F.interpolate(torch.rand(n, 3, 5, 5), size=24, mode="bicubic", align_corners=False)
    return F.avg_pool2d(high, 2), high


@torch.no_grad()
def psnr(generator, low, high):
    return (-10 * torch.log10(F.mse_loss(generator(low), high))).item()


def main():
    generator, discriminator = Generator(), Discriminator()
    opt_g = torch.optim.Adam(generator.parameters(), lr=4e-3)
    opt_d = torch.optim.Adam(discriminator.parameters(), lr=5e-4)
    tap = FeatureTap(discriminator.block1, discriminator.block2, discriminator.block3)
    low_val, high_val = batch(16)
    start = psnr(generator, low_val, high_val)

    for step in range(120):
        low, high = batch(8)
        fake = generator(low)
        d_loss = discriminator_loss(discriminator, fake, high)
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()

        g_loss, matching = generator_loss(discriminator, tap, fake, high)
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()
        if step % 40 == 39:
            print(f"step {step + 1}: d {d_loss.item():.3f}, feature matching {matching.item():.3f}")

    end = psnr(generator, low_val, high_val)
    print(f"psnr {start:.2f} -> {end:.2f} dB, gain {end - start:.1f} dB")


if __name__ == "__main__":
    main()
