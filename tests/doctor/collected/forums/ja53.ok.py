"""Spill large saved activations to disk during forward and load them again in backward."""
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd.graph import saved_tensors_hooks

torch.manual_seed(53)
torch.set_num_threads(1)


class ConvEncoder(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1)
        self.fc = nn.Linear(8, classes)

    def forward(self, x):
        x = F.silu(self.conv1(x))
        x = F.silu(self.conv2(x))
        return self.fc(x.mean(dim=(2, 3)))


class SpilledTensor:
    """A file that lives exactly as long as the graph needs it."""

    def __init__(self, path, tensor):
        self.path = path
        torch.save(tensor, path)

    def load(self):
        return torch.load(self.path)

    def __del__(self):
        if os.path.exists(self.path):
            os.remove(self.path)


class DiskSpiller:
    def __init__(self, directory, model, threshold):
        self.directory = directory
        self.threshold = threshold
        self.weights = {p.data_ptr() for p in model.parameters()}
        self.written = 0

    def pack(self, tensor):
        if tensor.numel() < self.threshold or tensor.data_ptr() in self.weights:
            return tensor
        self.written += 1
        path = os.path.join(self.directory, f"{self.written:06d}.pt")
        return SpilledTensor(path, tensor)

    def unpack(self, stored):
        return stored.load() if isinstance(stored, SpilledTensor) else stored

    def hooks(self):
        return saved_tensors_hooks(self.pack, self.unpack)


def gradients(model):
    return [p.grad.clone() for p in model.parameters()]


def main():
    labels = torch.arange(32) % 4
    images = torch.randn(32, 1, 12, 12) + labels.view(-1, 1, 1, 1) * 0.5
    model = ConvEncoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    F.cross_entropy(model(images), labels).backward()
    expected = gradients(model)

    with tempfile.TemporaryDirectory() as directory:
        spiller = DiskSpiller(directory, model, threshold=2000)
        for step in range(10):
            optimizer.zero_grad()
            with spiller.hooks():
                loss = F.cross_entropy(model(images), labels)
            on_disk = len(os.listdir(directory))
            loss.backward()
            if step == 0:
                equal = all(torch.equal(a, b) for a, b in zip(expected, gradients(model)))
                print(f"files during step: {on_disk}  gradients equal: {equal}")
            loss_value = loss.item()
            del loss
            optimizer.step()
        print(f"loss after 10 steps {loss_value:.4f}")
        print(f"files left: {len(os.listdir(directory))}  files per step: {spiller.written / 10:.1f}")


if __name__ == "__main__":
    main()
