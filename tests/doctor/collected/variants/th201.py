"""Regression training; if a batch has an unusually high loss, find the layer with the largest gradient."""
import contextlib
from functools import partial

import torch
from torch import nn


class ResidualNet(nn.Module):
    def __init__(self, dim=16, depth=3):
        super().__init__()
        self.stem = nn.Linear(8, dim)
        self.blocks = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        self.out = nn.Linear(dim, 1)

    def forward(self, x):
        h = self.stem(x)
        for block in self.blocks:
            h = h + torch.tanh(block(h))
        return self.out(h)


def record(report, name, module, grad_input, grad_output):
    report[name] = grad_output[0].norm().item()


class SpikeInspector:
    def __init__(self, model, factor=5.0):
        self.model, self.factor, self.mean = model, factor, None

    def is_spike(self, value):
        spike = self.mean is not None and value > self.factor * self.mean
        self.mean = value if self.mean is None else 0.9 * self.mean + 0.1 * value
        return spike

    def backward_with_report(self, loss):
        report = {}
        with contextlib.ExitStack() as stack:
            for i, block in enumerate(self.model.blocks):
                handle = block.register_full_backward_hook(partial(record, report, f"blocks.{i}"))
                stack.callback(handle.remove)
            loss.backward()
        return report


def batches():
    for i in range(10):
        x = torch.randn(32, 8)
        noise = 30.0 if i == 8 else 0.1
        yield x, x[:, :1] + noise * torch.randn(32, 1)


def main():
    torch.manual_seed(0)
    model = ResidualNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inspector = SpikeInspector(model)
    for step, (x, y) in enumerate(batches()):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        if inspector.is_spike(loss.item()):
            print(f"spike at step {step}: loss {loss.item():.1f}, gradients {inspector.backward_with_report(loss)}")
        else:
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


if __name__ == "__main__":
    main()
