"""Convolutional autoencoder with tied weights; the codes are archived and decoded later."""
import io

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import weight_norm

torch.set_num_threads(1)


class TiedAutoencoder(nn.Module):
    def __init__(self, width=16, code=8):
        super().__init__()
        self.enc1 = weight_norm(nn.Conv2d(1, width, 4, 2, 1))
        self.enc2 = weight_norm(nn.Conv2d(width, code, 4, 2, 1))
        self.dec_bias1 = nn.Parameter(torch.zeros(1))
        self.dec_bias2 = nn.Parameter(torch.zeros(width))

    def encode(self, x):
        return self.enc2(F.elu(self.enc1(x)))

    def decode(self, z):
        h = F.conv_transpose2d(z, self.enc2.weight, self.dec_bias2, stride=2, padding=1)
        return F.conv_transpose2d(F.elu(h), self.enc1.weight, self.dec_bias1, stride=2, padding=1)

    def forward(self, x):
        return self.decode(self.encode(x))


def blobs(n, generator):
    ys, xs = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    cy, cx = (4 + 8 * torch.rand(2, n, 1, 1, generator=generator))
    size = 2 + 6 * torch.rand(n, 1, 1, generator=generator)
    return torch.exp(-((ys - cy) ** 2 + (xs - cx) ** 2) / size).unsqueeze(1)


def train(model, generator, steps=150):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(steps):
        images = blobs(32, generator)
        loss = F.mse_loss(model(images), images)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def write_archive(model, images):
    model.eval()
    with torch.no_grad():
        codes = model.encode(images)
        preview = model.decode(codes)
    buffer = io.BytesIO()
    torch.save({"model": model.state_dict(), "codes": codes, "preview": preview}, buffer)
    buffer.seek(0)
    return buffer


class ArchiveReader:
    def __init__(self, buffer):
        archive = torch.load(buffer)
        self.codes = archive["codes"]
        self.preview = archive["preview"]
        self.model = TiedAutoencoder()
        self.model.load_state_dict(archive["model"])
        self.model.eval()

    @torch.no_grad()
    def images(self):
        return self.model.decode(self.codes)


def main():
    torch.manual_seed(6)
    generator = torch.Generator().manual_seed(6)
    model = TiedAutoencoder()
    print(f"training error {train(model, generator):.4f}")

    images = blobs(20, generator)
    buffer = write_archive(model, images)

    reader = ArchiveReader(buffer)
    restored = reader.images()
    print(f"error of the archived previews {F.mse_loss(reader.preview, images):.4f}")
    print(f"error of the restored images   {F.mse_loss(restored, images):.4f}")
    print(f"largest difference between preview and restored image: {(restored - reader.preview).abs().max():.4f}")


if __name__ == "__main__":
    main()
