"""Backward-gain monitor: which layer shrinks or amplifies the error signal?

Each layer's gain is the norm of the gradient it passes to its input divided by the norm
of the gradient it receives.  The gains of a chain multiply to the end-to-end gain.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(17)
torch.set_num_threads(1)


class GainMonitor:
    """Reads gradients at the autograd node of each layer's output."""

    def __init__(self, model):
        self.gains = {}
        self.handles = []
        for name, module in model.named_modules():
            if not list(module.children()):
                self.handles.append(module.register_forward_hook(self.watch(name)))

    def watch(self, name):
        def after_forward(module, args, output):
            def after_backward(grad_inputs, grad_outputs):
                received = grad_outputs[0].norm()
                passed = next(g for g in grad_inputs if g is not None and g.shape == args[0].shape).norm()
                self.gains[name] = (passed / received).item()
            output.grad_fn.register_hook(after_backward)
        return after_forward

    def close(self):
        for handle in self.handles:
            handle.remove()


def make_net(classes=4):
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(),
        nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 25, 32), nn.ReLU(),
        nn.Linear(32, 32), nn.ReLU(),
        nn.Linear(32, classes),
    )


def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(10.0), torch.arange(10.0), indexing="ij")
    waves = torch.stack([xx, yy, 0.7 * (xx + yy), 0.7 * (xx - yy)])
    y = torch.randint(0, 4, (n,), generator=g)
    phase = torch.rand(n, 1, 1, generator=g) * 6.28
    x = torch.sin(1.5 * waves[y] + phase) + 0.3 * torch.randn(n, 10, 10, generator=g)
    return x.unsqueeze(1), y


def train(net, x, y, steps=40):
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    for step in range(steps):
        idx = torch.arange(step * 64, step * 64 + 64) % len(x)
        loss = F.cross_entropy(net(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def main():
    x, y = make_data(512, seed=1)
    net = make_net()
    print(f"trained to loss {train(net, x, y):.4f}")

    monitor = GainMonitor(net)
    images = x[:64].clone().requires_grad_()
    logits = net(images)
    logits.retain_grad()
    F.cross_entropy(logits, y[:64]).backward()
    monitor.close()

    for name in sorted(monitor.gains, key=int):
        print(f"layer {name} {type(net[int(name)]).__name__:8s} gain {monitor.gains[name]:.4f}")
    product = math.prod(monitor.gains.values())
    measured = (images.grad.norm() / logits.grad.norm()).item()
    print(f"product of the gains {product:.4f}, end to end {measured:.4f}")
    print(f"ratio of the two: {product / measured:.3f}")


if __name__ == "__main__":
    main()
