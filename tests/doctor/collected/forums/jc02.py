"""Grad-CAM for a small densely connected network."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(3)


class DenseLayer(nn.Module):
    def __init__(self, in_channels, growth):
        super().__init__()
        self.norm = nn.BatchNorm2d(in_channels)
        self.conv = nn.Conv2d(in_channels, growth, 3, padding=1, bias=False)

    def forward(self, x):
        new = self.conv(F.relu(self.norm(x)))
        return torch.cat([x, new], dim=1)


class MiniDenseNet(nn.Module):
    def __init__(self, growth=8, layers=3, classes=5):
        super().__init__()
        blocks = [nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False)]
        channels = 16
        for _ in range(layers):
            blocks.append(DenseLayer(channels, growth))
            channels += growth
        blocks.append(nn.BatchNorm2d(channels))
        self.features = nn.Sequential(*blocks)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x):
        features = self.features(x)
        out = F.relu(features, inplace=True)
        out = F.adaptive_avg_pool2d(out, 1).flatten(1)
        return self.classifier(out)


class GradCAM:
    def __init__(self, model, layer):
        self.model = model
        self.activation = None
        self.gradient = None
        self.handles = [
            layer.register_forward_hook(self.save_activation),
            layer.register_full_backward_hook(self.save_gradient),
        ]

    def save_activation(self, module, inputs, output):
        self.activation = output.detach().clone()

    def save_gradient(self, module, grad_input, grad_output):
        self.gradient = grad_output[0].detach()

    def __call__(self, image, target=None):
        logits = self.model(image)
        if target is None:
            target = logits.argmax(dim=1).item()
        self.model.zero_grad()
        logits[0, target].backward()
        weights = self.gradient.mean(dim=(2, 3), keepdim=True)
        cam = F.relu((weights * self.activation).sum(dim=1, keepdim=True))
        cam = F.interpolate(cam, size=image.shape[-2:], mode="bilinear", align_corners=False)
        return target, (cam / cam.max().clamp_min(1e-8))[0, 0]

    def close(self):
        for handle in self.handles:
            handle.remove()


def make_images(count=4, size=32):
    generator = torch.Generator().manual_seed(8)
    images = 0.3 * torch.randn(count, 3, size, size, generator=generator)
    for i in range(count):
        row, col = 4 + 6 * (i % 2), 4 + 12 * (i // 2)
        images[i, :, row:row + 8, col:col + 8] += 1.5
    return images


def main():
    model = MiniDenseNet().eval()
    images = make_images()
    with torch.no_grad():
        print("predictions:", model(images).argmax(dim=1).tolist())

    cam = GradCAM(model, model.features[-1])
    for i in range(len(images)):
        target, heatmap = cam(images[i:i + 1])
        print(f"image {i}: class {target}, mean heat {heatmap.mean().item():.3f}, "
              f"hot area {(heatmap > 0.5).float().mean().item():.3f}")
    cam.close()


if __name__ == "__main__":
    main()
