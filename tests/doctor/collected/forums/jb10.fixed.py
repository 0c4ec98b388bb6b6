"""Denoising autoencoder with an additional perceptual loss from a fixed feature network."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(),
            nn.Conv2d(12, 12, 3, padding=1), nn.ReLU(),
            nn.Conv2d(12, 1, 3, padding=1),
        )

    def forward(self, x):
        return self.net(x)


class RecordingProbe:
    """Stores the output of chosen layers while it is attached."""

    def __init__(self, layers):
        self.records = []
        self.handles = [layer.register_forward_hook(self.record) for layer in layers]

    def record(self, module, inputs, output):
        self.records.append(output)

    def pop(self):
        records, self.records = self.records, []
        return records


class PerceptualLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.Tanh(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.Tanh(),
        )
        self.requires_grad_(False)
        self.probe = RecordingProbe([self.features[0], self.features[2]])

    def forward(self, output, target):
        with torch.no_grad():
            self.features(target)
        wanted = self.probe.pop()
        self.features(output)
        got = self.probe.pop()
        return sum(F.mse_loss(g, w) for g, w in zip(got, wanted))


def make_images(n=64):
    grid = torch.linspace(-1, 1, 12)
    yy, xx = torch.meshgrid(grid, grid, indexing="ij")
    phase = torch.rand(n, 1, 1, 1) * 6.28
    freq = 2 + 4 * torch.rand(n, 1, 1, 1)
    return torch.sin(freq * xx + phase) * torch.cos(freq * yy)


def train(weight, epochs=25):
    torch.manual_seed(9)
    model, perceptual = Denoiser(), PerceptualLoss()
    clean = make_images()
    noisy = clean + 0.3 * torch.randn_like(clean)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(epochs):
        for i in range(0, len(clean), 16):
            out = model(noisy[i:i + 16])
            target = clean[i:i + 16]
            loss = F.mse_loss(out, target) + weight * perceptual(out, target)
            opt.zero_grad()
            loss.backward()
            opt.step()
    with torch.no_grad():
        out = model(noisy)
        return F.mse_loss(out, clean).item(), perceptual(out, clean).item()


def main():
    for weight in (0.0, 1.0, 10.0):
        pixel, percept = train(weight)
        print(f"weight {weight:4.1f}: pixel {pixel:.6f} perceptual {percept:.6f}")


if __name__ == "__main__":
    main()
