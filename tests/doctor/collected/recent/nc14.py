"""Linear probe on features of a fixed audio encoder that runs inside the data pipeline.

The encoder is applied to each clip when the clip is loaded. A first pass over the training
clips collects the mean and the variance of the features; the probe is then trained on
standardised features.
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
CLASSES, LENGTH = 4, 128


class AudioEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 12, 9, stride=4)
        self.pool = nn.AdaptiveAvgPool1d(1)

    def forward(self, wave):
        return self.pool(torch.relu(self.conv(wave[None, None]))).flatten() * 0.02 + 3.0


class RunningMoments:
    def __init__(self, dim):
        self.n, self.total, self.square = 0, torch.zeros(dim), torch.zeros(dim)

    def update(self, module, args, out):
        self.n += 1
        self.total += out
        self.square += out ** 2

    def mean(self):
        return self.total / max(self.n, 1)

    def std(self):
        var = self.square / max(self.n, 1) - self.mean() ** 2
        return var.clamp_min(0).sqrt() if self.n else torch.ones_like(self.total)


class Clips(Dataset):
    def __init__(self, encoder, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.y = torch.randint(0, CLASSES, (n,), generator=g)
        t = torch.arange(LENGTH) / LENGTH
        phase = torch.rand(n, 1, generator=g) * 6.28
        self.x = torch.sin(6.28 * (4.0 + 5.0 * self.y[:, None]) * t + phase)
        self.x += 0.2 * torch.randn(n, LENGTH, generator=g)
        self.encoder = encoder

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        with torch.no_grad():
            return self.encoder(self.x[i]), self.y[i]


def load_all(dataset):
    loader = DataLoader(dataset, batch_size=40, num_workers=2, multiprocessing_context="fork")
    parts = list(loader)
    return torch.cat([f for f, _ in parts]), torch.cat([y for _, y in parts])


def main():
    torch.manual_seed(0)
    encoder = AudioEncoder().eval()
    moments = RunningMoments(12)
    handle = encoder.register_forward_hook(moments.update)
    train_x, train_y = load_all(Clips(encoder, 400, seed=1))
    handle.remove()
    test_x, test_y = load_all(Clips(encoder, 200, seed=2))
    norm = lambda f: (f - moments.mean()) / (moments.std() + 1e-6)

    probe = nn.Linear(12, CLASSES)
    opt = torch.optim.SGD(probe.parameters(), lr=0.1)
    for epoch in range(150):
        loss = nn.functional.cross_entropy(probe(norm(train_x)), train_y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    acc = (probe(norm(test_x)).argmax(1) == test_y).float().mean().item()
    print(f"clips in the statistics {moments.n}   mean feature {moments.mean().mean().item():.3f}")
    print(f"loss {loss.item():.3f}   probe accuracy {acc:.3f}")


if __name__ == "__main__":
    main()
