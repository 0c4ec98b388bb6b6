"""Reconstruct inputs from encoder features by gradient descent, several images with one encoder."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(6)
torch.set_num_threads(1)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.conv3 = nn.Conv2d(16, 16, 3, stride=2, padding=1)

    def forward(self, x):
        x = torch.tanh(self.conv1(x))
        x = torch.tanh(self.conv2(x))
        return self.conv3(x)


class Meter:
    """Bookkeeping for the run log: how much was written to the feature stores."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.maps = 0
        self.kilobytes = 0.0

    def update(self, tensor):
        self.maps += 1
        self.kilobytes += tensor.numel() * tensor.element_size() / 1024


class FeatureExtractor:
    def __init__(self, encoder, layers, meter):
        self.encoder = encoder
        self.layers = layers
        self.meter = meter
        self.features = {}
        self.handles = []
        for name in layers:
            self.handles.append(encoder.get_submodule(name).register_forward_hook(self.save(name)))

    def save(self, name):
        def hook(module, inputs, output):
            self.features[name] = output
            self.meter.update(output)
        return hook

    def close(self):
        for handle in self.handles:
            handle.remove()

    def run(self, image):
        self.encoder(image)
        return {name: self.features[name] for name in self.layers}


def reconstruct(encoder, target, layers, meter, steps=20):
    extractor = FeatureExtractor(encoder, layers, meter)
    with torch.no_grad():
        wanted = {k: v.clone() for k, v in extractor.run(target).items()}
    image = torch.zeros_like(target, requires_grad=True)
    opt = torch.optim.Adam([image], lr=0.1)
    for _ in range(steps):
        opt.zero_grad()
        got = extractor.run(image)
        loss = sum(F.mse_loss(got[name], wanted[name]) for name in layers)
        loss.backward()
        opt.step()
    extractor.close()
    return image.detach(), loss.item()


def main():
    encoder = Encoder().eval().requires_grad_(False)
    layers = ["conv1", "conv3"]
    meter = Meter()
    for index in range(4):
        target = torch.rand(1, 3, 16, 16)
        meter.reset()
        image, loss = reconstruct(encoder, target, layers, meter)
        error = (image - target).abs().mean().item()
        print(f"image {index}: feature loss {loss:.5f}  pixel error {error:.4f}  "
              f"maps stored {meter.maps}  ({meter.kilobytes:.0f} kB)")


if __name__ == "__main__":
    main()
