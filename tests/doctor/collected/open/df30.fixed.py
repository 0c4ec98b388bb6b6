"""Siamese training with activations parked in half precision outside the graph."""
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

torch.set_num_threads(1)


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 8))

    def forward(self, x):
        return self.net(x)


class Parking:
    """Everything that autograd wants to keep goes into a shelf; the graph keeps a ticket."""

    def __init__(self):
        self.shelf = {}
        self.next_ticket = 0

    def pack(self, tensor):
        ticket = self.next_ticket
        self.next_ticket += 1
        self.shelf[ticket] = tensor.detach().to(torch.bfloat16)
        return ticket, tensor.dtype

    def unpack(self, packed):
        ticket, dtype = packed
        return self.shelf[ticket].to(dtype)

    def context(self):
        return saved_tensors_hooks(self.pack, self.unpack)


def pair_loss(a, b, same):
    dist = (a - b).pow(2).sum(dim=1)
    return (same * dist + (1 - same) * torch.relu(2.0 - dist)).mean()


def grads(model, x1, x2, same, parking=None):
    model.zero_grad()
    if parking is None:
        a, b = model(x1), model(x2)
    else:
        with parking.context():
            a = model(x1)
        with parking.context():
            b = model(x2)
    pair_loss(a, b, same).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def main():
    torch.manual_seed(0)
    model = Embedder()
    x1, x2 = torch.randn(32, 10), torch.randn(32, 10)
    same = (torch.arange(32) % 2).float()
    parking = Parking()
    reference = grads(model, x1, x2, same)
    parked = grads(model, x1, x2, same, parking)
    error = ((parked - reference).norm() / reference.norm()).item()
    print(f"tensors on the shelf: {len(parking.shelf)}")
    print(f"relative error of the gradient {error:.3f}")
    print("rounding only:", error < 0.02)


if __name__ == "__main__":
    main()
