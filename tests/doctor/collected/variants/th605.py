"""Training with an activation monitor; FLOPs are counted once after the first epoch."""
from collections import OrderedDict, defaultdict

import torch
from torch import nn


class ActivationMonitor:
    def __init__(self, model):
        self.sparsity = defaultdict(list)
        self.handles = {}
        for name, module in model.named_modules():
            if isinstance(module, nn.ReLU):
                self.handles[name] = module.register_forward_hook(self._record(name))

    def _record(self, name):
        def record(module, args, output):
            self.sparsity[name].append((output == 0).float().mean().item())

        return record


class FlopCounter:
    def __init__(self, model):
        self.model, self.total = model, 0

    def __enter__(self):
        for module in self.model.modules():
            if isinstance(module, nn.Linear):
                module.register_forward_hook(self._count)
        return self

    def _count(self, module, args, output):
        self.total += 2 * module.weight.numel() * args[0].shape[0]

    def __exit__(self, *exc):
        for module in self.model.modules():
            module._forward_hooks = OrderedDict()


def build():
    blocks = [nn.Sequential(nn.Linear(16, 16), nn.ReLU()) for _ in range(2)]
    return nn.Sequential(*blocks, nn.Linear(16, 2))


def run_epoch(model, optimizer, batches=5):
    for _ in range(batches):
        x = torch.randn(32, 16)
        loss = nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    model = build()
    monitor = ActivationMonitor(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        loss = run_epoch(model, optimizer)
        if epoch == 0:
            with FlopCounter(model) as counter, torch.no_grad():
                model(torch.randn(1, 16))
            print("FLOPs per sample", counter.total)
        counts = {name: len(values) for name, values in monitor.sparsity.items()}
        print(f"epoch {epoch} loss {loss:.3f} recorded {counts}")
