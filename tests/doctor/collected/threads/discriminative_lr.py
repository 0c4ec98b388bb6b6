"""Discriminative fine-tuning: lower layers should learn more slowly."""
import torch
from torch import nn

FACTORS = {"layer1": 0.25, "layer2": 0.5, "layer3": 0.1, "head": 1.0}


class Net(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.stem = nn.Linear(8, d)
        self.layer1 = nn.Linear(d, d)
        self.layer2 = nn.Linear(d, d)
        self.layer3 = nn.Linear(d, d)
        self.head = nn.Linear(d, 3)

    def forward(self, x):
        x = torch.tanh(self.stem(x))
        x = torch.tanh(self.layer1(x))
        x = torch.tanh(self.layer2(x))
        x = torch.tanh(self.layer3(x))
        return self.head(x)


def scaled_by(factor):
    def hook(module, grad_input, grad_output):
        return tuple(g * factor if g is not None else None for g in grad_input)
    return hook


def gradients(with_factors):
    torch.manual_seed(0)
    model = Net()
    if with_factors:
        for name, f in FACTORS.items():
            model.get_submodule(name).register_full_backward_hook(scaled_by(f))
    x = torch.randn(64, 8)
    y = torch.randint(0, 3, (64,))
    nn.functional.cross_entropy(model(x), y).backward()
    return {n: m.weight.grad.clone() for n, m in model.named_children()}


plain = gradients(False)
scaled = gradients(True)
for n in plain:
    ratio = (scaled[n].norm() / plain[n].norm()).item()
    print(f"{n:7s} wanted factor {FACTORS.get(n, 1.0):5.2f}   factor of its weight gradient {ratio:.4f}")
