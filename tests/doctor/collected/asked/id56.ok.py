import itertools

import torch
from torch import nn

torch.set_num_threads(1)


class HostStore:
    """Keeps large activations outside the graph between forward and backward."""

    def __init__(self, model, min_size=256):
        self.min_size = min_size
        self.weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
        self.stored = {}
        self.counter = itertools.count()
        self.peak = 0

    def pack(self, tensor):
        is_weight = tensor.untyped_storage().data_ptr() in self.weights
        if is_weight or tensor.numel() < self.min_size:
            return tensor.detach()
        key = next(self.counter)
        self.stored[key] = tensor.detach().to("cpu", copy=True)
        self.peak = max(self.peak, len(self.stored))
        return key

    def unpack(self, packed):
        if torch.is_tensor(packed):
            return packed
        return self.stored.pop(packed)

    def offload(self):
        return torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack)


class Mixer(nn.Module):
    def __init__(self, channels=24, depth=4, classes=3):
        super().__init__()
        self.stem = nn.Linear(10, channels)
        self.layers = nn.ModuleList([nn.Linear(channels, channels) for _ in range(depth)])
        self.head = nn.Linear(channels, classes)

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            x = x + nn.functional.gelu(layer(x))
        return self.head(x)


def make_batch():
    generator = torch.Generator().manual_seed(14)
    x = torch.randn(48, 10, generator=generator)
    return x, x[:, :3].argmax(dim=1)


def train(offload, steps=12):
    torch.manual_seed(2)
    model = Mixer()
    store = HostStore(model) if offload else None
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x, y = make_batch()
    for _ in range(steps):
        optimizer.zero_grad()
        if store is None:
            loss = nn.functional.cross_entropy(model(x), y)
        else:
            with store.offload():
                loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    return model, loss.item(), store


def main():
    plain, plain_loss, _ = train(offload=False)
    model, loss, store = train(offload=True)
    same = all(torch.equal(a, b) for a, b in zip(plain.parameters(), model.parameters()))
    print(f"loss {loss:.3f}, without offloading {plain_loss:.3f}")
    print(f"identical weights: {same}")
    print(f"at most {store.peak} activations kept outside, {len(store.stored)} left at the end")


if __name__ == "__main__":
    main()
