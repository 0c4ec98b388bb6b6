"""Activation patching: how much of the clean activation is restored at each layer?"""
import torch
from torch import nn

torch.manual_seed(0)
DEPTH, D = 4, 16


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(D, D)

    def forward(self, x):
        return x + torch.tanh(self.lin(x))


class Recorder:
    def __init__(self, layers):
        self.acts = {}
        for i, layer in enumerate(layers):
            layer.register_forward_hook(self.make(i))

    def make(self, i):
        def hook(module, args, output):
            self.acts[i] = output.detach().clone()
        return hook


layers = nn.ModuleList(Layer() for _ in range(DEPTH))
head = nn.Linear(D, 2)
recorder = Recorder(layers)


def run(x):
    for layer in layers:
        x = layer(x)
    return head(x), dict(recorder.acts)


with torch.no_grad():
    x = torch.randn(8, D)
    clean_logits, clean = run(x)
    x_bad = x + torch.randn(8, D)
    bad_logits, corrupted = run(x_bad)

    print("layer  restored at the layer itself   restored at the logits")
    for i in range(DEPTH):
        def patch(module, args, output):
            return clean[i]
        handle = layers[i].register_forward_hook(patch)
        logits, patched = run(x_bad)
        handle.remove()
        base = (corrupted[i] - clean[i]).norm()
        at_layer = 1 - (patched[i] - clean[i]).norm() / base
        at_logits = 1 - (logits - clean_logits).norm() / (bad_logits - clean_logits).norm()
        print(f"{i:5d}  {at_layer:28.3f}   {at_logits:22.3f}")
