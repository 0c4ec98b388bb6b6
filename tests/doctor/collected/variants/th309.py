"""Mixed-precision trainer with value clipping, configured from a dataclass."""
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Precision:
    amp: bool = True
    init_scale: float = 2.0**14


@dataclass
class Settings:
    precision: Precision
    lr: float = 0.2
    clip_value: float = 0.5
    epochs: int = 4


class ResMlp(nn.Module):
    def __init__(self, dim=12, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        self.readout = nn.Linear(dim, 1)

    def forward(self, x):
        for block in self.blocks:
            x = x + F.relu(block(x))
        return self.readout(x)


class AmpTrainer:
    def __init__(self, model, settings):
        self.model, self.s = model, settings
        self.optimizer = torch.optim.SGD(model.parameters(), lr=settings.lr)
        self.scaler = torch.amp.GradScaler(
            "cpu", enabled=settings.precision.amp, init_scale=settings.precision.init_scale
        )
        clip = partial(torch.clamp, min=-settings.clip_value, max=settings.clip_value)
        self.handles = [p.register_hook(clip) for p in model.parameters()]

    def fit(self, batches):
        for _ in range(self.s.epochs):
            for x, y in batches:
                self.optimizer.zero_grad()
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.s.precision.amp):
                    prediction = self.model(x)
                loss = F.mse_loss(prediction.float(), y)
                self.scaler.scale(loss).backward()
                self.scaler.step(self.optimizer)
                self.scaler.update()
        return loss.item()


def main():
    for amp in (False, True):
        torch.manual_seed(0)
        batches = [(x, 2 + x[:, :1]) for x in torch.randn(4, 32, 12)]
        trainer = AmpTrainer(ResMlp(), Settings(Precision(amp=amp)))
        with torch.no_grad():
            first = F.mse_loss(trainer.model(batches[0][0]), batches[0][1]).item()
        print(f"amp {amp}: loss {first:.4f} -> {trainer.fit(batches):.4f}")


if __name__ == "__main__":
    main()
