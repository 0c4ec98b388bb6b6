"""How far are the features of two domains apart? One probe, cleared between the domains."""
import torch
from torch import nn

torch.set_num_threads(1)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(1, 6, 5, stride=2)
        self.conv2 = nn.Conv1d(6, 12, 5, stride=2)
        self.fc = nn.Linear(12, 4)

    def forward(self, x):
        x = torch.relu(self.conv1(x))
        x = torch.relu(self.conv2(x))
        return self.fc(x.mean(dim=2))


class MeanProbe:
    """Running mean of the input of a layer over all rows since the last clear()."""

    def __init__(self, layer, width):
        self.width = width
        self.clear()
        def update(module, args):
            stats, rows = self.stats, args[0].detach()
            stats["sum"] += rows.sum(dim=0)
            stats["n"] += rows.shape[0]

        self.handle = layer.register_forward_pre_hook(update)

    def clear(self):
        self.stats = {"sum": torch.zeros(self.width), "n": 0}

    def mean(self):
        return self.stats["sum"] / max(self.stats["n"], 1)


def domain(offset, noise, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.linspace(0, 6.28, 64)
    for _ in range(4):
        phase = torch.rand(16, 1, generator=g)
        yield (torch.sin(t + phase) + offset + noise * torch.randn(16, 64, generator=g)).unsqueeze(1)


def main():
    torch.manual_seed(0)
    encoder = Encoder().eval()
    probe = MeanProbe(encoder.fc, 12)
    means = {}
    for name, (offset, noise, seed) in {"clinic A": (0.0, 0.1, 1), "clinic B": (0.02, 0.1, 2)}.items():
        with torch.no_grad():
            for batch in domain(offset, noise, seed):
                encoder(batch)
        means[name] = probe.mean()
        print(f"{name}: {probe.stats['n']} rows, mean norm {means[name].norm().item():.4f}")
        probe.clear()
    gap = (means["clinic A"] - means["clinic B"]).norm().item()
    print(f"distance between the domains {gap:.4f}")


if __name__ == "__main__":
    main()
