"""Backpropagation through time with an LSTM cell: the gradient of the hidden
state is clipped at every time step, and its size is reported per step."""
from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(89)


class Adder(nn.Module):
    """Adds the two marked numbers of a sequence."""

    def __init__(self, hidden=24, limit=0.01):
        super().__init__()
        self.cell = nn.LSTMCell(2, hidden)
        self.out = nn.Linear(hidden, 1)
        self.limit = limit
        self.norms = {}

    def on_hidden_grad(self, grad, step):
        norm = grad.norm()
        self.norms.setdefault(step, []).append(norm.item())
        if norm > self.limit:
            return grad * (self.limit / norm)
        return None

    def forward(self, x):
        state = None
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], state)
            if h.requires_grad:
                h.register_hook(partial(self.on_hidden_grad, step=t))
            state = (h, c)
        return self.out(h).squeeze(1)


def make_batch(n, length, generator):
    values = torch.rand(n, length, generator=generator)
    marks = torch.zeros(n, length)
    first = torch.randint(0, length // 2, (n,), generator=generator)
    second = torch.randint(length // 2, length, (n,), generator=generator)
    rows = torch.arange(n)
    marks[rows, first] = 1.0
    marks[rows, second] = 1.0
    target = values[rows, first] + values[rows, second]
    return torch.stack([values, marks], dim=2), target


def main():
    generator = torch.Generator().manual_seed(0)
    length, steps = 10, 90
    model = Adder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    running = 0.0
    for step in range(steps):
        x, y = make_batch(64, length, generator)
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item()
        if step % 30 == 29:
            print(f"step {step + 1}: mean loss {running / 30:.4f}")
            running = 0.0

    print("gradient of the hidden state (before clipping)")
    for t in sorted(model.norms):
        values = torch.tensor(model.norms[t])
        clipped = (values > model.limit).float().mean().item()
        print(f"  t={t}: {len(values)} backward passes, mean {values.mean().item():.5f}, "
              f"clipped {100 * clipped:.0f}%")

    with torch.no_grad():
        x, y = make_batch(256, length, generator)
        print(f"test error {F.mse_loss(model(x), y).item():.4f}")


if __name__ == "__main__":
    main()
