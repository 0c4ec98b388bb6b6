"""Two-phase transfer learning: train the head, then fine-tune everything."""

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


@dataclass
class Config:
    seed: int = 77
    batch_size: int = 48
    head_steps: int = 25
    finetune_steps: int = 25
    head_lr: float = 1e-2
    finetune_lr: float = 5e-3


class GlyphNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.head = nn.Linear(16 * 2 * 2, 10)

    def forward(self, x):
        return self.head(self.features(x))


class FineTuner:
    def __init__(self, cfg: Config):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        glyphs = (torch.rand(10, 8, 8) > 0.5).float()  # ten random symbols, drawn noisily
        self.y = torch.randint(0, 10, (1200,))
        self.x = (glyphs[self.y] + 0.3 * torch.randn(1200, 8, 8)).unsqueeze(1)
        self.model = GlyphNet()
        self.global_step = 0

    def set_trainable(self, module: nn.Module, flag: bool) -> None:
        for p in module.parameters():
            p.requires_grad_(flag)

    def sample(self):
        idx = torch.randint(0, len(self.x), (self.cfg.batch_size,))
        return self.x[idx], self.y[idx]

    def run_phase(self, name: str, optimizer: torch.optim.Optimizer, steps: int) -> None:
        self.model.train()
        for _ in range(steps):
            x, y = self.sample()
            loss = F.cross_entropy(self.model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"{name} step {self.global_step} loss {loss.item()!r}")
            self.global_step += 1

    def fit(self) -> None:
        # phase 1: only the head
        self.set_trainable(self.model.features, False)
        optimizer = torch.optim.Adam(self.model.head.parameters(), lr=self.cfg.head_lr)
        self.run_phase("head", optimizer, self.cfg.head_steps)

        # phase 2: everything, with a fresh optimizer
        self.set_trainable(self.model.features, True)
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.cfg.finetune_lr)
        self.run_phase("finetune", optimizer, self.cfg.finetune_steps)

    def checksum(self) -> float:
        return sum(p.detach().double().sum().item() for p in self.model.parameters() if p.requires_grad)


if __name__ == "__main__":
    tuner = FineTuner(Config())
    tuner.fit()
    print(f"checksum {tuner.checksum()!r}")
