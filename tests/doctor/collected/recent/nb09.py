"""Denoising auto-encoder: train, fold the batch norms for deployment, check the images.

The network predicts the residual noise.  A forward hook on the model turns the raw
prediction into a valid image (input minus noise, clipped to 0..1).
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.fx.experimental.optimization import fuse

torch.manual_seed(9)
torch.set_num_threads(1)


class ConvBN(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(cout)
        self.act = nn.ReLU()

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))


class NoiseNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.layer1 = ConvBN(1, width)
        self.layer2 = ConvBN(width, width)
        self.out = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, x):
        return self.out(self.layer2(self.layer1(x)))


def to_image(module, args, output):
    image = args[0] - output
    return image if module.training else image.clamp(0.0, 1.0)


def make_images(n, seed):
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(14.0), torch.arange(14.0), indexing="ij")
    cx = torch.rand(n, 1, 1, generator=g) * 14
    cy = torch.rand(n, 1, 1, generator=g) * 14
    clean = torch.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / 18.0).unsqueeze(1)
    return clean, clean + 0.3 * torch.randn(clean.shape, generator=g)


def train(model, clean, noisy, steps=60):
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    model.train()
    for step in range(steps):
        idx = torch.arange(step * 32, step * 32 + 32) % len(clean)
        loss = F.mse_loss(model(noisy[idx]), clean[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step:2d} loss {loss.item():.4f}")
    model.eval()


@torch.no_grad()
def psnr(model, clean, noisy):
    error = F.mse_loss(model(noisy), clean)
    return (10 * torch.log10(1.0 / error)).item()


def main():
    clean, noisy = make_images(256, seed=1)
    test_clean, test_noisy = make_images(128, seed=2)
    model = NoiseNet()
    model.register_forward_hook(to_image)
    train(model, clean, noisy)

    deployed = fuse(model)
    remaining = sum(isinstance(m, nn.BatchNorm2d) for m in deployed.modules())
    print(f"batch norms left after folding: {remaining}")

    print(f"noisy images: {psnr(nn.Identity(), test_clean, test_noisy):.1f} dB")
    trained_db = psnr(model, test_clean, test_noisy)
    deployed_db = psnr(deployed, test_clean, test_noisy)
    print(f"trained model: {trained_db:.1f} dB")
    print(f"deployed model: {deployed_db:.1f} dB")
    print(f"loss from folding: {trained_db - deployed_db:.1f} dB")


if __name__ == "__main__":
    main()
