"""Grad-CAM for a network with in-place activations and a fixed backbone; maps
are made for a whole batch at once and the model is left as it was."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(61)


def conv_bn(cin, cout, stride=1):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
    )


class MobileStyleNet(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.features = nn.Sequential(conv_bn(3, 16, 2), conv_bn(16, 24), conv_bn(24, 32, 2))
        self.classifier = nn.Sequential(nn.Dropout(0.1), nn.Linear(32, classes))

    def forward(self, x):
        return self.classifier(self.features(x).mean(dim=(2, 3)))


class BatchGradCAM:
    """Use as a context manager; layers are given by their dotted names."""

    def __init__(self, model, layer_names):
        self.model = model
        self.layer_names = layer_names
        self.maps = {}
        self.grads = {}
        self.handles = []

    def hook(self, name):
        def forward_hook(module, inputs, output):
            self.maps[name] = output.detach().clone()
            output.register_hook(lambda grad: self.grads.__setitem__(name, grad.detach().clone()))
        return forward_hook

    def __enter__(self):
        for name in self.layer_names:
            layer = self.model.get_submodule(name)
            self.handles.append(layer.register_forward_hook(self.hook(name)))
        return self

    def __exit__(self, *exc):
        while self.handles:
            self.handles.pop().remove()
        self.maps.clear()
        self.grads.clear()

    def __call__(self, images):
        images = images.clone().requires_grad_(True)
        logits = self.model(images)
        winners = logits.argmax(dim=1)
        torch.autograd.grad(logits.gather(1, winners[:, None]).sum(), images)
        cams = {}
        for name in self.layer_names:
            weight = self.grads[name].mean(dim=(2, 3), keepdim=True)
            cam = F.relu((weight * self.maps[name]).sum(dim=1, keepdim=True))
            cam = F.interpolate(cam, images.shape[-2:], mode="bilinear", align_corners=False)
            cams[name] = cam[:, 0] / cam.amax(dim=(1, 2, 3))[:, None, None].clamp_min(1e-8)
        return winners, cams


def make_images(n, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 3
    images = 0.3 * torch.randn(n, 3, 24, 24, generator=generator)
    for i, label in enumerate(labels.tolist()):
        images[i, label, 3 + 5 * label:11 + 5 * label, 6:14] += 1.3
    return images, labels


def main():
    model = MobileStyleNet()
    images, labels = make_images(96, seed=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(15):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    print(f"training loss {loss.item():.3f}")

    model.eval().requires_grad_(False)
    test_images, test_labels = make_images(6, seed=2)
    with BatchGradCAM(model, ["features.1.1", "features.2"]) as cam:
        winners, cams = cam(test_images)
        print(f"accuracy {(winners == test_labels).float().mean().item():.2f}")
        for name, batch in cams.items():
            peaks = [divmod(c.argmax().item(), c.shape[1]) for c in batch]
            print(f"{name}: mean heat {batch.mean().item():.4f}, peaks {peaks}")


if __name__ == "__main__":
    main()
