"""Multi-task training: watch the conflict between task gradients and damp one of them."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd.graph import register_multi_grad_hook

torch.manual_seed(54)
torch.set_num_threads(1)


class MultiTaskNet(nn.Module):
    def __init__(self, features=12, hidden=32):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, hidden))
        self.classify = nn.Linear(hidden, 3)
        self.regress = nn.Linear(hidden, 1)

    def forward(self, x):
        return F.relu(self.trunk(x))


class ConflictMonitor:
    """Records the cosine between the gradients that two tasks send into the trunk."""

    def __init__(self):
        self.cosines = []

    def watch(self, first, second):
        return register_multi_grad_hook((first, second), self.record)

    def record(self, grads):
        first, second = (g.flatten() for g in grads)
        self.cosines.append(F.cosine_similarity(first, second, dim=0).item())


def make_data(n=384, features=12):
    x = torch.randn(n, features)
    y_class = (x[:, :3] + 0.3 * torch.randn(n, 3)).argmax(dim=1)
    y_value = x[:, 2] - x[:, 5] + 0.1 * torch.randn(n)
    return x, y_class, y_value


def train(model, data, epochs, monitor=None, regression_weight=0.3):
    x, y_class, y_value = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(epochs):
        for batch in torch.randperm(len(x)).split(64):
            shared = model(x[batch])
            for_classes = shared.view_as(shared)
            for_values = shared.view_as(shared)
            for_values.register_hook(lambda grad: grad * regression_weight)
            handle = monitor.watch(for_classes, for_values) if monitor else None

            class_loss = F.cross_entropy(model.classify(for_classes), y_class[batch])
            value_loss = F.mse_loss(model.regress(for_values).squeeze(-1), y_value[batch])
            optimizer.zero_grad()
            (class_loss + value_loss).backward()
            optimizer.step()
            if handle is not None:
                handle.remove()
    return class_loss.item(), value_loss.item()


def main():
    data = make_data()
    model = MultiTaskNet()

    monitor = ConflictMonitor()
    class_loss, value_loss = train(model, data, epochs=3, monitor=monitor)
    mean = sum(monitor.cosines) / len(monitor.cosines)
    print(f"monitored steps: {len(monitor.cosines)}  mean cosine {mean:+.3f}")
    print(f"class loss {class_loss:.3f}  value loss {value_loss:.3f}")

    class_loss, value_loss = train(model, data, epochs=10)
    print(f"monitored steps after plain training: {len(monitor.cosines)}")
    print(f"class loss {class_loss:.3f}  value loss {value_loss:.3f}")


if __name__ == "__main__":
    main()
