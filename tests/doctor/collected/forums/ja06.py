"""Keep saved activations in half precision during the forward pass of an MLP."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd.graph import saved_tensors_hooks

torch.manual_seed(5)
torch.set_num_threads(1)


class WideMLP(nn.Module):
    def __init__(self, features=16, hidden=256, classes=6, depth=3):
        super().__init__()
        self.embed = nn.Linear(features, hidden)
        self.layers = nn.ModuleList([nn.Linear(hidden, hidden) for _ in range(depth)])
        self.out = nn.Linear(hidden, classes)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = F.gelu(layer(x))
        return self.out(x)


class HalfPrecisionActivations:
    """Stores float32 activations as float16 between forward and backward.

    Parameters live in memory anyway, so they are passed through untouched.
    """

    def __init__(self, model):
        self.parameters = {id(p) for p in model.parameters()}
        self.bytes = 0

    def pack(self, tensor):
        if tensor.dtype != torch.float32 or tensor.dim() < 2:
            return tensor, False
        if id(tensor) in self.parameters:
            return tensor, False
        packed = tensor.half()
        self.bytes += packed.numel() * packed.element_size()
        return packed, True

    def unpack(self, stored):
        tensor, compressed = stored
        return tensor.float() if compressed else tensor

    def context(self):
        self.bytes = 0
        return saved_tensors_hooks(self.pack, self.unpack)


def make_data(n=320, features=16, classes=6):
    centers = torch.randn(classes, features)
    labels = torch.randint(0, classes, (n,))
    return centers[labels] + 0.8 * torch.randn(n, features), labels


def main():
    x, y = make_data()
    model = WideMLP()
    storage = HalfPrecisionActivations(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    for epoch in range(5):
        total = 0.0
        for batch in torch.arange(len(x)).split(32):
            with storage.context():
                loss = F.cross_entropy(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        print(f"epoch {epoch}: loss {total / len(x):.4f}")

    activations = 32 * (16 + 256 * 7 + 6) * 4
    print(f"float32 activations of a batch: {activations / 1024:.0f} KiB")
    print(f"extra float16 copies of a batch: {storage.bytes / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
