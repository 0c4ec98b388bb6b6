"""Sparse autoencoder-style classifier, trained with nn.DataParallel and an activity penalty."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(21)

SPARSE_LAYERS = ("encoder.1", "encoder.3")
PENALTY_WEIGHT = 0.05


class SparseNet(nn.Module):
    def __init__(self, n_in=20, n_hidden=48, n_classes=3):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(n_in, n_hidden), nn.ReLU(),
            nn.Linear(n_hidden, n_hidden), nn.ReLU(),
        )
        self.classifier = nn.Linear(n_hidden, n_classes)

    def forward(self, x):
        return self.classifier(self.encoder(x))


class ActivityPenalty:
    """Sums the mean absolute activation of the chosen layers during the forward pass."""

    def __init__(self, model, layers):
        self.values = []
        self.handles = [
            module.register_forward_hook(self.collect)
            for name, module in model.named_modules() if name in layers
        ]

    def collect(self, module, inputs, output):
        self.values.append(output.abs().mean())

    def pop(self):
        total = sum(self.values, torch.zeros(()))
        self.values.clear()
        return total

    def close(self):
        for handle in self.handles:
            handle.remove()


def make_blobs(n=480, n_in=20, n_classes=3):
    gen = torch.Generator().manual_seed(2)
    means = torch.randn(n_classes, n_in, generator=gen)
    y = torch.arange(n) % n_classes
    x = means[y] + 0.8 * torch.randn(n, n_in, generator=gen)
    return x, y


@torch.no_grad()
def evaluate(net, x, y):
    net.eval()
    hidden = net.encoder(x)
    accuracy = (net.classifier(hidden).argmax(1) == y).float().mean().item()
    net.train()
    return accuracy, (hidden > 0.01).float().mean().item()


def main():
    x, y = make_blobs()
    loader = DataLoader(TensorDataset(x[:384], y[:384]), batch_size=32, shuffle=True,
                        generator=torch.Generator().manual_seed(0))
    model = nn.DataParallel(SparseNet())
    penalty = ActivityPenalty(model, SPARSE_LAYERS)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    for epoch in range(5):
        ce_sum = penalty_sum = 0.0
        for xb, yb in loader:
            ce = F.cross_entropy(model(xb), yb)
            activity = penalty.pop()
            loss = ce + PENALTY_WEIGHT * activity
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ce_sum += ce.item()
            penalty_sum += activity.item()
        print(f"epoch {epoch}  ce {ce_sum / len(loader):.4f}  activity {penalty_sum / len(loader):.4f}")
    penalty.close()

    accuracy, active = evaluate(model.module, x[384:], y[384:])
    print(f"accuracy {accuracy:.3f}  active units {active:.3f}")


if __name__ == "__main__":
    main()
