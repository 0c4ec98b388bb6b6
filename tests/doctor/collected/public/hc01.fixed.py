"""Mixed-precision training of a small 1-D conv net that regresses peak positions in spectra."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)

SEED = 3
EPOCHS = 6
BATCH_SIZE = 32
LEARNING_RATE = 0.05
GRAD_CLIP = 0.5


def make_spectra(n, length=64, seed=0):
    gen = torch.Generator().manual_seed(seed)
    centers = torch.rand(n, 1, generator=gen) * 0.8 + 0.1
    widths = torch.rand(n, 1, generator=gen) * 0.05 + 0.03
    grid = torch.linspace(0, 1, length).unsqueeze(0)
    signal = torch.exp(-((grid - centers) / widths) ** 2)
    signal = signal + 0.05 * torch.randn(n, length, generator=gen)
    return signal.unsqueeze(1), centers * 4.0 - 2.0


class PeakNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.conv1 = nn.Conv1d(1, width, 7, stride=2, padding=3)
        self.conv2 = nn.Conv1d(width, width, 5, stride=2, padding=2)
        self.fc1 = nn.Linear(width * 16, 32)
        self.fc2 = nn.Linear(32, 1)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc2(x)


class AmpTrainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 10, growth_interval=500)

    def train_epoch(self, loader):
        total, largest = 0.0, 0.0
        for x, y in loader:
            self.optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                pred = self.model(x)
                loss = F.mse_loss(pred.float(), y)
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_value_(self.model.parameters(), GRAD_CLIP)
            step_max = max(p.grad.abs().max().item() for p in self.model.parameters())
            largest = max(largest, step_max)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            total += loss.item() * len(x)
        return total / len(loader.dataset), largest


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    error = (model(x) - y).abs().mean().item()
    model.train()
    return error


def main():
    torch.manual_seed(SEED)
    x, y = make_spectra(640, seed=1)
    loader = DataLoader(TensorDataset(x[:512], y[:512]), batch_size=BATCH_SIZE, shuffle=True,
                        generator=torch.Generator().manual_seed(SEED))
    trainer = AmpTrainer(PeakNet())
    for epoch in range(EPOCHS):
        loss, largest = trainer.train_epoch(loader)
        print(f"epoch {epoch}  train mse {loss:.4f}  largest gradient entry {largest:.5f}")
    print(f"scale {trainer.scaler.get_scale():.0f}")
    print(f"validation mean absolute error {evaluate(trainer.model, x[512:], y[512:]):.4f}")


if __name__ == "__main__":
    main()
