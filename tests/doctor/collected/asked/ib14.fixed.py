"""Watch for dying units while training a compiled model."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)


class Regressor(nn.Module):
    def __init__(self, inputs=12, hidden=32):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(inputs, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
        )
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.out(self.body(x)).squeeze(-1)


class ActivityMonitor:
    """Average share of active units per ReLU since the last report."""

    def __init__(self):
        self.active = {}
        self.batches = {}
        self.handles = []

    def attach(self, model):
        for name, module in model.named_modules():
            if isinstance(module, nn.ReLU):
                self.active[name] = torch.zeros(())
                self.batches[name] = torch.zeros(())
                self.handles.append(module.register_forward_hook(self._hook(name)))

    def _hook(self, name):
        def count(module, args, output):
            self.active[name].add_((output.detach() > 0).float().mean())
            self.batches[name].add_(1)

        return count

    def report(self):
        lines = []
        for name, total in self.active.items():
            share = total / self.batches[name].clamp(min=1)
            lines.append(f"{name} {share.item():.3f}")
            total.zero_()
            self.batches[name].zero_()
        return ", ".join(lines)

    def detach(self):
        for handle in self.handles:
            handle.remove()
        self.handles.clear()


def make_batches(count, size=64):
    truth = torch.randn(12, generator=torch.Generator().manual_seed(6))
    for _ in range(count):
        x = torch.randn(size, 12)
        yield x, torch.sin(x @ truth)


def train_epoch(model, optimizer):
    total = 0.0
    for x, y in make_batches(20):
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / 20


def main():
    model = Regressor()
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    monitor = ActivityMonitor()

    monitor.attach(model)
    loss = train_epoch(compiled, optimizer)
    print(f"warm-up: loss {loss:.4f}, active units {monitor.report()}")
    for epoch in range(3):
        loss = train_epoch(compiled, optimizer)
        print(f"epoch {epoch}: loss {loss:.4f}, active units {monitor.report()}")
    monitor.detach()


if __name__ == "__main__":
    main()
