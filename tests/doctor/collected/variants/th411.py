"""Memory-saving trainer: one optimizer per parameter, stepped as soon as its gradient is ready."""
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Args:
    lr: float = 2e-3
    max_norm: float = 1.0
    epochs: int = 2
    batches: int = 3


class FusedStepper:
    def __init__(self, model, factory):
        self.optimizers = {}
        self.handles = []
        for p in model.parameters():
            self.optimizers[p] = factory([p])
            self.handles.append(p.register_post_accumulate_grad_hook(self._apply))

    def _apply(self, p):
        optimizer = self.optimizers[p]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


class Forecaster(nn.Module):
    def __init__(self, features=4, hidden=16):
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, batch_first=True)
        self.readout = nn.Linear(hidden, 1)

    def forward(self, series):
        states, _ = self.lstm(series)
        return self.readout(states[:, -1]).squeeze(-1)


def run(args):
    torch.manual_seed(0)
    model = Forecaster()
    FusedStepper(model, lambda params: torch.optim.SGD(params, lr=args.lr))
    for epoch in range(args.epochs):
        for index in range(args.batches):
            series = torch.randn(16, 10, 4)
            target = 30 * series.sum(dim=(1, 2))
            before = [p.detach().clone() for p in model.parameters()]
            loss = nn.functional.mse_loss(model(series), target)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), args.max_norm)
            moved = sum((p - q).pow(2).sum() for p, q in zip(model.parameters(), before)).sqrt().item()
            print(
                f"epoch {epoch} batch {index} loss {loss.item():10.1f} gradient norm {norm.item():.2f} "
                f"moved {moved:.4f} (at most {args.lr * args.max_norm} if clipped)"
            )


if __name__ == "__main__":
    run(Args())
