"""Data-dependent initialisation: a hook that runs once per layer, sets the scale and removes itself."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class MLP(nn.Module):
    def __init__(self, sizes=(10, 64, 64, 64, 4)):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.tanh(layer(x))
        return self.layers[-1](x)


class UnitVarianceInit:
    """At the first call of a layer its weights are rescaled, the new output replaces the old one."""

    def __init__(self, model):
        self.done = []
        self.handles = {}
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear):
                self.handles[name] = module.register_forward_hook(self.make(name))

    def make(self, name):
        @torch.no_grad()
        def hook(module, args, output):
            scale = 1.0 / output.std().clamp(min=1e-6)
            module.weight.mul_(scale)
            module.bias.mul_(scale)
            self.handles.pop(name).remove()
            self.done.append(name)
            return output * scale
        return hook


def stds(model, x):
    out = []
    hs = [l.register_forward_hook(lambda m, a, o: out.append(round(o.std().item(), 2))) for l in model.layers]
    with torch.no_grad():
        model(x)
    for h in hs:
        h.remove()
    return out


def main():
    torch.manual_seed(0)
    x = torch.randn(256, 10) * 0.2
    y = x[:, :4].argmax(-1)
    model = MLP()
    print("output std before:", stds(model, x))
    init = UnitVarianceInit(model)
    with torch.no_grad():
        model(x)  # the only pass in which the hooks do something
    print("initialised:", init.done, "hooks still waiting:", len(init.handles))
    print("output std after:", stds(model, x))
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(60):
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
