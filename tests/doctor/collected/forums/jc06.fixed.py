"""Guided backpropagation compared with plain saliency on a small residual network."""
import copy

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(31)


class Block(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride=stride, padding=1)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.skip = nn.Conv2d(cin, cout, 1, stride=stride)
        self.relu2 = nn.ReLU()

    def forward(self, x):
        out = self.conv2(self.relu1(self.conv1(x)))
        return self.relu2(out + self.skip(x))


class ResNeXtLike(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 12, 3, padding=1),
            Block(12, 16, stride=2),
            Block(16, 24, stride=2),
            Block(24, 24),
        )
        self.classifier = nn.Linear(24, classes)

    def forward(self, x):
        return self.classifier(self.features(x).mean(dim=(2, 3)))


class Saliency:
    def __init__(self, model):
        self.model = model.eval()

    def __call__(self, image, target):
        image = image.clone().requires_grad_(True)
        score = self.model(image)[0, target]
        grad, = torch.autograd.grad(score, image)
        return grad[0]


class GuidedBackprop(Saliency):
    def __init__(self, model):
        super().__init__(model)
        self.handles = []
        self.update_relus()

    def update_relus(self):
        def clip_negative(module, grad_input, grad_output):
            return (grad_input[0].clamp(min=0.0),)

        for module in self.model.features.modules():
            if isinstance(module, nn.ReLU):
                self.handles.append(module.register_full_backward_hook(clip_negative))

    def close(self):
        for handle in self.handles:
            handle.remove()


def make_images(n=3):
    generator = torch.Generator().manual_seed(77)
    images = 0.4 * torch.randn(n, 3, 24, 24, generator=generator)
    for i in range(n):
        images[i, i % 3, 4 + 3 * i:12 + 3 * i, 6:14] += 1.0
    return images


def contrast(saliency):
    flat = saliency.abs().amax(dim=0).flatten()
    return (flat.topk(20).values.mean() / flat.mean()).item()


def main():
    model = ResNeXtLike()
    plain = Saliency(copy.deepcopy(model))
    guided = GuidedBackprop(model)
    images = make_images()
    differing = []
    for i in range(len(images)):
        image = images[i:i + 1]
        with torch.no_grad():
            target = model(image).argmax(dim=1).item()
        plain_map = plain(image, target)
        guided_map = guided(image, target)
        share = (plain_map - guided_map).abs().amax(dim=0).gt(1e-7).float().mean().item()
        differing.append(share)
        print(f"image {i}: class {target}, contrast plain {contrast(plain_map):.3f} "
              f"guided {contrast(guided_map):.3f}")
    guided.close()
    print(f"pixels where the guided map differs from the plain map: "
          f"{100 * sum(differing) / len(differing):.1f}%")


if __name__ == "__main__":
    main()
