"""Profile of the gradient signal over the depth of a plain tanh network, with automatic diagnosis."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class PlainNet(nn.Module):
    def __init__(self, dim=40, depth=8, gain=1.0):
        super().__init__()
        self.inp = nn.Linear(12, dim)
        self.hidden = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        self.out = nn.Linear(dim, 3)
        for layer in self.hidden:
            nn.init.normal_(layer.weight, std=gain / dim ** 0.5)

    def forward(self, x):
        x = torch.tanh(self.inp(x))
        for layer in self.hidden:
            x = torch.tanh(layer(x))
        return self.out(x)


class DepthProfile:
    def __init__(self, model):
        self.names = [f"hidden.{i}" for i in range(len(model.hidden))]
        self.norms = []
        self.handles = [layer.register_full_backward_hook(self.collect) for layer in model.hidden]

    def collect(self, module, grad_input, grad_output):
        self.norms.append(grad_output[0].norm().item())

    def result(self):
        # one entry per layer
        profile = dict(zip(self.names, self.norms))
        self.norms = []
        return profile

    def close(self):
        for h in self.handles:
            h.remove()


def diagnose(profile):
    values = list(profile.values())
    ratio = values[0] / values[-1]
    if ratio < 0.1:
        return "gradient vanishes towards the input"
    if ratio > 10:
        return "gradient explodes towards the input"
    return "gradient is stable"


def run(gain):
    torch.manual_seed(0)
    x = torch.randn(128, 12)
    y = x[:, :3].argmax(-1)
    model = PlainNet(gain=gain)
    profile = DepthProfile(model)
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    result = profile.result()
    profile.close()
    print(f"gain {gain}: loss {loss.item():.3f}")
    for name, value in result.items():
        print(f"   {name}: {value:.6f}")
    print("  ", diagnose(result))


def main():
    for gain in (0.5, 3.0):
        run(gain)


if __name__ == "__main__":
    main()
