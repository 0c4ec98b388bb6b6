"""Train a CNN with the saved activations kept outside the autograd graph.

Tensors needed for the backward pass are put into a store (on a real machine: host
memory) and fetched again when they are used.  A tensor that is saved by two operations
is stored only once.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd.graph import saved_tensors_hooks

torch.manual_seed(13)
torch.set_num_threads(1)


class ActivationStore:
    def __init__(self):
        self.tensors = {}
        self.saved = 0

    def pack(self, tensor):
        self.saved += 1
        key = (id(tensor), tensor.shape, tensor.dtype)
        if key not in self.tensors:
            self.tensors[key] = tensor.detach().clone()
        return key

    def unpack(self, key):
        return self.tensors[key]

    def clear(self):
        self.tensors.clear()
        self.saved = 0


class Net(nn.Module):
    def __init__(self, width=8, depth=5, classes=4):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.body = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = torch.tanh(self.stem(x))
        for conv in self.body:
            x = x + torch.tanh(conv(x))
        return self.head(x.mean((2, 3)))


def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    waves = torch.stack([xx, yy, 0.7 * (xx + yy), 0.7 * (xx - yy)])
    y = torch.randint(0, 4, (n,), generator=g)
    phase = torch.rand(n, 1, 1, generator=g) * 6.28
    x = torch.sin(1.5 * waves[y] + phase) + 0.3 * torch.randn(n, 12, 12, generator=g)
    return x.unsqueeze(1), y


def gradients(net, loss):
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(net.parameters()))])


def main():
    x, y = make_data(320, seed=1)
    net = Net()
    store = ActivationStore()

    with saved_tensors_hooks(store.pack, store.unpack):
        loss = F.cross_entropy(net(x[:32]), y[:32])
    offloaded = gradients(net, loss)
    print(f"{store.saved} saved tensors, {len(store.tensors)} kept")
    store.clear()
    plain = gradients(net, F.cross_entropy(net(x[:32]), y[:32]))
    cosine = F.cosine_similarity(offloaded, plain, dim=0).item()
    print(f"agreement with ordinary training: cosine {cosine:.4f}")

    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for step in range(50):
        idx = torch.arange(step * 32, step * 32 + 32) % len(x)
        with saved_tensors_hooks(store.pack, store.unpack):
            loss = F.cross_entropy(net(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        store.clear()
        if step % 10 == 0:
            print(f"step {step:2d} loss {loss.item():.4f}")
    with torch.no_grad():
        acc = (net(x).argmax(1) == y).float().mean().item()
    print(f"training accuracy {acc:.3f}")


if __name__ == "__main__":
    main()
