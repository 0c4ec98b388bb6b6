"""WDSR style super-resolution (x2) with weight normalisation."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import weight_norm

torch.manual_seed(5)
torch.set_num_threads(1)


def icnr(weight, scale):
    """Same kernel for all sub-pixels, so that the start is a plain nearest neighbour upscaling."""
    sub = torch.empty(weight.shape[0] // scale ** 2, *weight.shape[1:])
    nn.init.kaiming_uniform_(sub, a=5 ** 0.5)
    return sub.repeat_interleave(scale ** 2, dim=0)


def upsampling_conv(in_channels, out_channels, kernel, scale):
    conv = nn.Conv2d(in_channels, out_channels * scale ** 2, kernel, padding=kernel // 2)
    conv.weight.data.copy_(icnr(conv.weight.data, scale))
    nn.init.zeros_(conv.bias)
    return weight_norm(conv)


class WideBlock(nn.Module):
    def __init__(self, width, expand=3):
        super().__init__()
        self.conv1 = weight_norm(nn.Conv2d(width, width * expand, 3, padding=1))
        self.conv2 = weight_norm(nn.Conv2d(width * expand, width, 3, padding=1))

    def forward(self, x):
        return x + self.conv2(F.relu(self.conv1(x)))


class WDSR(nn.Module):
    def __init__(self, width=12, blocks=2, scale=2):
        super().__init__()
        self.head = weight_norm(nn.Conv2d(3, width, 3, padding=1))
        self.body = nn.Sequential(*[WideBlock(width) for _ in range(blocks)])
        self.tail = upsampling_conv(width, 3, 3, scale)
        self.skip = upsampling_conv(3, 3, 5, scale)
        self.shuffle = nn.PixelShuffle(scale)

    def forward(self, x):
        deep = self.shuffle(self.tail(self.body(self.head(x))))
        return deep + self.shuffle(self.skip(x))


def checkerboard(picture):
    """Mean deviation of the pixels of each 2x2 cell from the mean of the cell."""
    cell = F.interpolate(F.avg_pool2d(picture, 2), scale_factor=2, mode="nearest")
    return (picture - cell).abs().mean().item()


def batch(n):
    coarse = torch.rand(n, 3, 6, 6)
    high = F.interpolate(coarse, size=24, mode="bicubic", align_corners=False)
    return F.avg_pool2d(high, 2), high


def psnr(a, b):
    return (-10 * torch.log10(F.mse_loss(a, b))).item()


def main():
    model = WDSR()
    low, high = batch(16)
    with torch.no_grad():
        print(f"checkerboard at start: {checkerboard(model(low)):.4f}")

    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(60):
        x, y = batch(8)
        loss = F.l1_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"step {step + 1}: l1 {loss.item():.4f}")

    model.eval()
    with torch.no_grad():
        print(f"psnr after training: {psnr(model(low), high):.2f} dB")


if __name__ == "__main__":
    main()
