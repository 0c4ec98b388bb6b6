"""Data-free image synthesis from the statistics in the batch norm layers of a classifier."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(22)
torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn = nn.BatchNorm2d(cout)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


class Net(nn.Module):
    def __init__(self, num_classes=3):
        super().__init__()
        self.blocks = nn.Sequential(Block(3, 16, 1), Block(16, 32, 2), Block(32, 32, 2))
        self.fc = nn.Linear(32, num_classes)

    def forward(self, x):
        return self.fc(self.blocks(x).mean((2, 3)))


class StatisticsLoss:
    """Distance of the batch statistics from the running ones, summed over all batch norm layers."""

    def __init__(self, model):
        self.terms = []
        self.handles = [m.register_forward_pre_hook(self.compare)
                        for m in model.modules() if isinstance(m, nn.BatchNorm2d)]

    def compare(self, module, inputs):
        x, = inputs
        var, mean = torch.var_mean(x, (0, 2, 3), unbiased=False)
        self.terms.append((mean - module.running_mean).norm() + (var - module.running_var).norm())

    def pop(self):
        total = torch.stack(self.terms).sum()
        self.terms.clear()
        return total

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for handle in self.handles:
            handle.remove()
        self.terms.clear()


def sample(n):
    labels = torch.randint(0, 3, (n,))
    images = 0.2 * torch.randn(n, 3, 16, 16) + 0.5
    for i, label in enumerate(labels.tolist()):
        images[i, label, 4:12, 4:12] += 1.0
    return images, labels


def train(model, steps=60):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(steps):
        images, labels = sample(32)
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def synthesise(model, labels, steps=60):
    images = torch.randn(len(labels), 3, 16, 16).requires_grad_(True)
    optimizer = torch.optim.Adam([images], lr=0.1)
    with StatisticsLoss(model) as statistics:
        for step in range(steps):
            logits = model(images)
            distance = statistics.pop()
            loss = F.cross_entropy(logits, labels) + 0.1 * distance
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step in (0, steps - 1):
                print(f"step {step + 1}: distance of the statistics {distance.item():.3f}")
    return images.detach()


def main():
    model = Net()
    print(f"classifier trained, loss {train(model):.4f}")
    model.eval().requires_grad_(False)
    labels = torch.arange(12) % 3
    for attempt in range(2):
        images = synthesise(model, labels)
        with torch.no_grad():
            accuracy = (model(images).argmax(1) == labels).float().mean().item()
        print(f"attempt {attempt}: mean {images.mean():.3f}, accuracy on the images {accuracy:.2f}")


if __name__ == "__main__":
    main()
