"""Gradient norms per layer during training, to see whether the gradient vanishes towards the input."""
import collections
import torch
import torch.nn as nn
import torch.nn.functional as F


def build(depth=5, width=32):
    layers = [nn.Linear(8, width), nn.Tanh()]
    for _ in range(depth - 2):
        layers += [nn.Linear(width, width), nn.Tanh()]
    layers.append(nn.Linear(width, 2))
    return nn.Sequential(*layers)


class GradientLogger:
    """Collects the norm of the weight gradient of every linear layer."""

    def __init__(self, model):
        self.history = collections.defaultdict(list)
        self.handles = []
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear):
                self.handles.append(module.register_full_backward_hook(self.make_hook(name)))

    def make_hook(self, name):
        def hook(module, grad_input, grad_output):
            # the backward of this layer is done, so its weight gradient is there
            g = module.weight.grad
            self.history[name].append(0.0 if g is None else g.norm().item())
        return hook

    def table(self):
        rows = []
        for name in sorted(self.history, key=int):
            values = self.history[name]
            rows.append((name, sum(values) / len(values)))
        return rows

    def remove(self):
        for h in self.handles:
            h.remove()


def spirals(n, gen):
    t = torch.rand(n, generator=gen) * 6
    label = torch.randint(0, 2, (n,), generator=gen)
    angle = t + 3.1416 * label
    base = torch.stack([t * angle.cos(), t * angle.sin()], 1) / 3
    return torch.cat([base, base ** 2, base.sin(), base.cos()], 1), label


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(4)
    model = build()
    logger = GradientLogger(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(60):
        x, y = spirals(128, gen)
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step:3d} loss {loss.item():.4f}")
    logger.remove()
    for name, value in logger.table():
        verdict = "VANISHING" if value < 1e-4 else "ok"
        print(f"linear {name}: mean gradient norm {value:.5f} {verdict}")


if __name__ == "__main__":
    main()
