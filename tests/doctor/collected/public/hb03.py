"""Reconstruct images from the features of an encoder (one optimisation per image)."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(2)
torch.set_num_threads(1)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 5, 2, 2)
        self.conv2 = nn.Conv2d(16, 32, 3, 2, 1)
        self.conv3 = nn.Conv2d(32, 32, 3, 1, 1)

    def forward(self, x):
        x = F.leaky_relu(self.conv1(x), 0.1)
        x = F.leaky_relu(self.conv2(x), 0.1)
        return self.conv3(x)


class Meter:
    def __init__(self):
        self.maps = 0
        self.values = 0

    def add(self, tensor):
        self.maps += 1
        self.values += tensor.numel()

    def reset(self):
        self.maps = self.values = 0


class FeatureExtractor:
    def __init__(self, encoder, layers, meter):
        self.encoder = encoder
        self.meter = meter
        self.features = {name: [] for name in layers}
        modules = dict(encoder.named_modules())
        self.handles = [modules[n].register_forward_hook(self.collector(n)) for n in layers]

    def collector(self, name):
        def hook(module, inputs, output):
            self.features[name].append(output)
            self.meter.add(output)
        return hook

    def run(self, image):
        for collected in self.features.values():
            collected.clear()
        self.encoder(image)
        return {name: collected[0] for name, collected in self.features.items()}

    def close(self):
        for handle in self.handles:
            handle.remove()


def total_variation(image):
    return (image[..., 1:, :] - image[..., :-1, :]).abs().mean() + \
        (image[..., :, 1:] - image[..., :, :-1]).abs().mean()


def reconstruct(target, encoder, layers, meter, steps=20):
    extractor = FeatureExtractor(encoder, layers, meter)
    with torch.no_grad():
        wanted = extractor.run(target)
    image = torch.zeros_like(target).requires_grad_(True)
    optimizer = torch.optim.Adam([image], lr=0.1)
    for _ in range(steps):
        features = extractor.run(image)
        loss = sum(F.mse_loss(features[n], wanted[n]) for n in layers)
        loss = loss + 1e-4 * total_variation(image)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return image.detach(), loss.item()


def smooth_picture():
    coarse = torch.rand(1, 3, 4, 4)
    return F.interpolate(coarse, size=32, mode="bicubic", align_corners=False)


def main():
    encoder = Encoder().eval().requires_grad_(False)
    layers = ["conv1", "conv3"]
    meter = Meter()
    pictures = [smooth_picture() for _ in range(4)]
    for i, picture in enumerate(pictures):
        meter.reset()
        image, loss = reconstruct(picture, encoder, layers, meter)
        error = F.mse_loss(image, picture).item()
        print(f"image {i}: loss {loss:.5f}, pixel error {error:.4f}, "
              f"{meter.maps} feature maps collected ({meter.values} values)")


if __name__ == "__main__":
    main()
