"""Dense training, one-shot magnitude pruning, then fine-tuning of the survivors."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(1)
torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(20, 64)
        self.fc2 = nn.Linear(64, 64)
        self.fc3 = nn.Linear(64, 4)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


class Pruner:
    """Zeroes the smallest weights and keeps them out of the later updates."""

    def __init__(self, model, optimizer, amount):
        self.optimizer = optimizer
        self.amount = amount
        self.weights = [m.weight for m in model.modules() if isinstance(m, nn.Linear)]

    @torch.no_grad()
    def prune(self):
        for weight in self.weights:
            k = int(weight.numel() * self.amount)
            threshold = weight.abs().flatten().kthvalue(k).values
            mask = (weight.abs() > threshold).float()
            weight.mul_(mask)
            weight.register_hook(self.masked(mask))

    @staticmethod
    def masked(mask):
        def hook(grad):
            return grad * mask
        return hook

    def sparsity(self):
        zeros = sum((w == 0).sum().item() for w in self.weights)
        return zeros / sum(w.numel() for w in self.weights)


def run_epoch(model, optimizer, x, y):
    total = 0.0
    for batch in torch.randperm(len(x)).split(64):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
        total += loss.item() * len(batch)
    return total / len(x)


def main():
    x = torch.randn(768, 20)
    teacher = torch.randn(20, 4)
    y = (x @ teacher).argmax(dim=1)

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(8):
        loss = run_epoch(model, optimizer, x, y)
    print(f"dense loss {loss:.4f}")

    pruner = Pruner(model, optimizer, amount=0.7)
    pruner.prune()
    print(f"sparsity after pruning: {pruner.sparsity():.2f}")

    for epoch in range(4):
        loss = run_epoch(model, optimizer, x, y)
        print(f"fine-tune {epoch}: loss {loss:.4f}")
    print(f"sparsity of the model to export: {pruner.sparsity():.2f}")


if __name__ == "__main__":
    main()
