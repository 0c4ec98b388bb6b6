"""Track effective multiply-accumulates of a sparse MLP over pre-training."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)


class SparseMLP(nn.Module):
    def __init__(self, inputs=40, hidden=64, classes=5):
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, classes)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


class Benchmark:
    """Accuracy and number of MACs whose input is not zero, per sample."""

    def __init__(self, model):
        self.model = model
        self.macs = 0
        self.samples = 0

    def _add_hooks(self):
        for module in self.model.modules():
            if isinstance(module, nn.Linear):
                module.register_forward_hook(self._count)

    def _count(self, module, args, output):
        active = (args[0] != 0).sum().item()
        self.macs += active * module.out_features

    @torch.no_grad()
    def run(self, loader):
        self.macs = 0
        self.samples = 0
        correct = 0
        self._add_hooks()
        self.model.eval()
        for x, y in loader:
            correct += (self.model(x).argmax(dim=1) == y).sum().item()
            self.samples += len(x)
        return {
            "accuracy": correct / self.samples,
            "effective_macs": self.macs / self.samples,
        }


def make_loader(count, batch_size):
    centers = torch.randn(5, 40, generator=torch.Generator().manual_seed(2))
    labels = torch.randint(0, 5, (count,))
    data = centers[labels] + 1.5 * torch.randn(count, 40)
    return list(zip(data.split(batch_size), labels.split(batch_size)))


def train_epoch(model, optimizer, loader):
    model.train()
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    train_loader = make_loader(640, 32)
    test_loader = make_loader(256, 64)
    model = SparseMLP()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    benchmark = Benchmark(model)
    dense = sum(m.in_features * m.out_features for m in model.modules() if isinstance(m, nn.Linear))
    for epoch in range(4):
        train_epoch(model, optimizer, train_loader)
        result = benchmark.run(test_loader)
        print(
            f"epoch {epoch}: accuracy {result['accuracy']:.3f}, "
            f"effective MACs {result['effective_macs']:.0f} "
            f"({result['effective_macs'] / dense:.0%} of dense)"
        )


if __name__ == "__main__":
    main()
