"""Autoencoder with tied, sparse weights: the decoder uses the transposed masked encoder weight."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(9)


class MaskedWeight:
    """Keeps `weight_raw` as the trained parameter and writes the masked `weight` before each use."""

    def __init__(self, layer, keep):
        raw = layer.weight
        del layer._parameters["weight"]
        layer.register_parameter("weight_raw", nn.Parameter(raw.detach().clone()))
        mask = torch.zeros(raw.numel())
        mask[torch.randperm(raw.numel())[: int(keep * raw.numel())]] = 1
        layer.register_buffer("mask", mask.view_as(raw))
        layer.register_forward_pre_hook(self.refresh)
        self.refresh(layer, None)

    @staticmethod
    def refresh(layer, args):
        layer.weight = layer.weight_raw * layer.mask


class TiedAutoencoder(nn.Module):
    def __init__(self, d=10, code=4):
        super().__init__()
        self.enc = nn.Linear(d, code)
        self.dec_bias = nn.Parameter(torch.zeros(d))
        MaskedWeight(self.enc, keep=0.7)

    def encode(self, x):
        return self.enc(x)

    def decode(self, z):
        MaskedWeight.refresh(self.enc, None)
        return F.linear(z, self.enc.weight.t(), self.dec_bias)

    def forward(self, x):
        return self.decode(self.encode(x))


def train(model, x, epochs=30):
    opt = torch.optim.SGD(model.parameters(), lr=0.3)
    for _ in range(epochs):
        for xb in x.split(32):
            loss = F.mse_loss(model(xb), xb)
            opt.zero_grad()
            loss.backward()
            opt.step()
    return loss.item()


basis = torch.randn(4, 10)
x = torch.randn(128, 4) @ basis / 2
model = TiedAutoencoder()
print(f"reconstruction loss {train(model, x):.3f}")

# a model from another run is loaded, then new samples are drawn from the prior
torch.manual_seed(10)
other = TiedAutoencoder()
other.load_state_dict(model.state_dict())
z = torch.randn(5, 4)
with torch.no_grad():
    samples = other.decode(z)
    expected = F.linear(z, (model.enc.weight_raw * model.enc.mask).t(), model.dec_bias)
    print("sample 0:", [round(v, 2) for v in samples[0].tolist()])
    print(f"distance to the trained decoder: {(samples - expected).norm().item():.4f}")
    held_out = torch.randn(16, 4) @ basis / 2
    print(f"held-out loss of the loaded model {F.mse_loss(other(held_out), held_out).item():.3f}")
    print(f"distance after evaluation:       {(other.decode(z) - expected).norm().item():.4f}")
