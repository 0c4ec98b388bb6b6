"""CNN whose first kernels are a fixed edge-filter bank; the other kernels are learned."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(7)
torch.set_num_threads(1)

FIXED = 4


def edge_bank(size=5):
    axis = torch.linspace(-1, 1, size)
    yy, xx = torch.meshgrid(axis, axis, indexing="ij")
    kernels = []
    for k in range(FIXED):
        angle = math.pi * k / FIXED
        along = xx * math.cos(angle) + yy * math.sin(angle)
        kernels.append(along * torch.exp(-(xx ** 2 + yy ** 2)))
    return torch.stack(kernels)[:, None]


class EdgeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 12, 5, padding=2, bias=False)
        self.conv2 = nn.Conv2d(12, 16, 3, padding=1)
        self.fc = nn.Linear(16, 4)
        with torch.no_grad():
            self.conv1.weight[:FIXED] = edge_bank()

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.relu(self.conv2(x))
        return self.fc(x.amax(dim=(2, 3)))


def keep_filters(grad):
    grad = grad.clone()
    grad[:FIXED] = 0
    return grad


def make_images(n=192):
    labels = torch.randint(0, 4, (n,))
    images = torch.randn(n, 1, 12, 12) * 0.2
    for i, label in enumerate(labels.tolist()):
        if label == 0:
            images[i, 0, :6] += 1
        elif label == 1:
            images[i, 0, :, :6] += 1
        elif label == 2:
            images[i, 0] += torch.eye(12) * 2
        else:
            images[i, 0] += torch.eye(12).flip(0) * 2
    return images, labels


def main():
    images, labels = make_images()
    model = EdgeNet()
    model.conv1.weight.register_hook(keep_filters)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(8):
        for batch in torch.randperm(len(images)).split(32):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
    print(f"loss after training {loss.item():.3f}")
    drift = (model.conv1.weight.detach()[:FIXED] - edge_bank()).abs().amax(dim=(1, 2, 3))
    print("largest change per edge filter:", " ".join(f"{d:.4f}" for d in drift.tolist()))


if __name__ == "__main__":
    main()
