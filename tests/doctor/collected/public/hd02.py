"""Churn model on tabular data, compiled, with a monitor for inactive hidden units."""
import torch
from torch import nn
import torch.nn.functional as F


class ChurnNet(nn.Module):
    def __init__(self, features, hidden=48):
        super().__init__()
        self.fc1 = nn.Linear(features, hidden)
        self.act1 = nn.ReLU()
        self.fc2 = nn.Linear(hidden, hidden)
        self.act2 = nn.ReLU()
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        x = self.act1(self.fc1(x))
        x = self.act2(self.fc2(x))
        return self.out(x).squeeze(-1)


class InactiveUnits:
    """Share of zero activations behind every ReLU, averaged over the batches of an epoch."""

    def __init__(self, model):
        self.zeros = {}
        self.batches = {}
        for name, module in model.named_modules():
            if isinstance(module, nn.ReLU):
                self.zeros[name] = torch.zeros(())
                self.batches[name] = torch.zeros(())
                module.register_forward_hook(self._make_hook(name))

    def _make_hook(self, name):
        zeros, batches = self.zeros[name], self.batches[name]

        def hook(module, inputs, output):
            zeros.add_((output.detach() == 0).float().mean())
            batches.add_(1.0)

        return hook

    def report(self):
        lines = []
        for name in self.zeros:
            share = (self.zeros[name] / self.batches[name]).item()
            lines.append(f"{name} {share:.3f}")
        self.reset()
        return ", ".join(lines)

    def reset(self):
        for name in self.zeros:
            self.zeros[name].zero_()
            self.batches[name].zero_()


class Trainer:
    def __init__(self, model, batch_size=64):
        self.model = model
        self.batch_size = batch_size
        self.step_model = torch.compile(model, backend="eager")
        self.optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    def warm_up(self, features):
        self.step_model(features[:self.batch_size])

    def epoch(self, features, labels):
        total, steps = 0.0, 0
        for start in range(0, len(features) - self.batch_size + 1, self.batch_size):
            rows = slice(start, start + self.batch_size)
            loss = F.binary_cross_entropy_with_logits(self.step_model(features[rows]), labels[rows])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
            steps += 1
        return total / steps


def make_customers(count=1280, features=12):
    x = torch.randn(count, features)
    score = x[:, 0] - 0.7 * x[:, 3] + x[:, 5] * x[:, 6]
    return x, (score + 0.3 * torch.randn(count) > 0).float()


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    x, y = make_customers()
    model = ChurnNet(x.shape[1])
    trainer = Trainer(model)
    trainer.warm_up(x)
    monitor = InactiveUnits(model)
    for epoch in range(3):
        loss = trainer.epoch(x, y)
        print(f"epoch {epoch}: loss {loss:.4f}, inactive: {monitor.report()}")


if __name__ == "__main__":
    main()
