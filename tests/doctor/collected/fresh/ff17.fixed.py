"""Post-training quantisation: compare outputs of float and fake-quantised layers to pick the bit width."""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(17)


def fake_quant(w, bits):
    top = 2 ** (bits - 1) - 1
    scale = w.abs().amax(1, keepdim=True) / top
    return (w / scale).round().clamp(-top, top) * scale


class QuantLinear(nn.Module):
    """Keeps the float layer and computes with quantised weights."""

    def __init__(self, inner, bits):
        super().__init__()
        self.inner = inner
        self.bits = bits

    def forward(self, x):
        return F.linear(x, fake_quant(self.inner.weight, self.bits), self.inner.bias)


def build():
    torch.manual_seed(18)
    return nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 4))


def quantise(model, bits):
    for name, child in model.named_children():
        if isinstance(child, nn.Linear):
            setattr(model, name, QuantLinear(child, bits))
    return model


def layer_outputs(model, x):
    outputs, handles = {}, []
    for name, module in model.named_modules():
        if isinstance(module, QuantLinear) or (isinstance(module, nn.Linear) and "." not in name):
            key = name.split(".")[0]
            handles.append(module.register_forward_hook(
                lambda m, a, o, key=key: outputs.__setitem__(key, o.detach())))
    with torch.no_grad():
        model(x)
    for h in handles:
        h.remove()
    return outputs


x = torch.randn(64, 10)
reference = layer_outputs(build(), x)
chosen = None
for bits in (2, 3, 4, 8):
    outputs = layer_outputs(quantise(build(), bits), x)
    errors = [((outputs[k] - reference[k]).norm() / reference[k].norm()).item() for k in outputs]
    error = max(errors, default=0.0)
    print(f"{bits} bits: largest relative error of a layer output {error:.5f}")
    if chosen is None and error < 0.05:
        chosen = bits
print("smallest bit width within 5 %:", chosen)
