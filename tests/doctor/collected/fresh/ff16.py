"""Simulated int8 activations: how far does the quantised copy of a model move from the float model?"""
import copy
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

torch.manual_seed(16)


class Classifier(nn.Module):
    def __init__(self, dim=20, classes=5):
        super().__init__()
        self.stem = nn.Linear(12, dim)
        self.body = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        h = self.stem(x)
        return self.head(h + self.body(h))


def round_to(x, bits):
    top = 2 ** (bits - 1) - 1
    scale = x.abs().max().clamp(min=1e-8) / top
    return (x / scale).round().clamp(-top, top) * scale


class ActivationQuantiser:
    """Rounds the output of every linear layer of a model, without changes to the model's code."""

    def __init__(self, model, bits):
        self.model, self.bits = model, bits
        self.calls = 0

    def hook(self, module, args, output):
        if isinstance(module, nn.Linear):
            self.calls += 1
            return round_to(output, self.bits)

    def __enter__(self):
        self.handles = [register_module_forward_hook(self.hook)]
        return self

    def __exit__(self, *exc):
        for h in self.handles:
            h.remove()


float_model = Classifier().eval()
x = torch.randn(50, 12)
for bits in (8, 4, 3):
    quantised = copy.deepcopy(float_model)
    with ActivationQuantiser(quantised, bits) as q, torch.no_grad():
        # both models see the same batch, one is rounded and one is not
        reference = float_model(x)
        result = quantised(x)
    error = ((result - reference).norm() / reference.norm()).item()
    same = (result.argmax(1) == reference.argmax(1)).float().mean().item()
    print(f"{bits} bits: {q.calls} roundings, relative error {error:.5f}, same class {same:.2f}")
print("lowest bit width tried costs accuracy:", same < 1.0)
