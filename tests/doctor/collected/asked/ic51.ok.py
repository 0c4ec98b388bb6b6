"""Grad-CAM over several layers of a frozen network, hooks alive only while a batch is explained."""
from contextlib import contextmanager
from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)


class LeafNet(nn.Module):
    def __init__(self, num_classes=3):
        super().__init__()
        self.stage1 = nn.Sequential(nn.Conv2d(3, 12, 3, stride=2, padding=1), nn.ReLU(inplace=True))
        self.stage2 = nn.Sequential(nn.Conv2d(12, 20, 3, padding=1), nn.ReLU(inplace=True))
        self.stage3 = nn.Sequential(nn.Conv2d(20, 20, 3, padding=1), nn.ReLU(inplace=True))
        self.fc = nn.Linear(20, num_classes)

    def forward(self, x):
        x = self.stage3(self.stage2(self.stage1(x)))
        return self.fc(x.mean(dim=(2, 3)))


class CamRecorder:
    def __init__(self):
        self.activations = {}
        self.gradients = {}

    def on_forward(self, name, module, inputs, output):
        self.activations[name] = output.detach().clone()
        output.register_hook(partial(self.on_gradient, name))

    def on_gradient(self, name, grad):
        self.gradients[name] = grad.detach().clone()

    def maps(self):
        result = {}
        for name, activation in self.activations.items():
            weights = self.gradients[name].mean(dim=(2, 3), keepdim=True)
            result[name] = F.relu((weights * activation).sum(dim=1))
        return result


@contextmanager
def recording(model, names):
    recorder = CamRecorder()
    handles = [
        model.get_submodule(name).register_forward_hook(partial(recorder.on_forward, name))
        for name in names
    ]
    try:
        yield recorder
    finally:
        for handle in handles:
            handle.remove()


def explain(model, images, names):
    with recording(model, names) as recorder:
        inputs = images.clone().requires_grad_(True)
        logits = model(inputs)
        targets = logits.argmax(dim=1)
        logits.gather(1, targets[:, None]).sum().backward()
    return targets, recorder.maps()


def fit(model, images, labels, steps=30):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    return loss.item()


def make_images(count=36, size=16):
    labels = torch.arange(count) % 3
    images = 0.2 * torch.rand(count, 3, size, size)
    for i, label in enumerate(labels.tolist()):
        start = 1 + 5 * label
        images[i, label, start:start + 4, start:start + 4] += 1.0
    return images, labels


def main():
    images, labels = make_images()
    model = LeafNet()
    print(f"loss {fit(model, images, labels):.3f}")
    model.eval().requires_grad_(False)
    names = ["stage1", "stage2", "stage3"]
    for start in range(0, 12, 4):
        targets, maps = explain(model, images[start:start + 4], names)
        sizes = "  ".join(f"{name} {maps[name].mean().item():.4f}" for name in names)
        print(f"predictions {targets.tolist()}  mean map values {sizes}")


if __name__ == "__main__":
    main()
