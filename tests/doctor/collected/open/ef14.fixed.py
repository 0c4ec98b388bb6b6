"""Which memory units of an LSTM decoder matter? Zero them one at a time and compare the predictions."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Counter(nn.Module):
    """Reads a 0/1 sequence and predicts after each step how many ones were seen (mod 4)."""

    def __init__(self, hidden=20):
        super().__init__()
        self.cell = nn.LSTMCell(1, hidden)
        self.out = nn.Linear(hidden, 4)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], self.cell.hidden_size)
        c = torch.zeros_like(h)
        logits = []
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t:t + 1], (h, c))
            logits.append(self.out(h))
        return torch.stack(logits, 1)


class CellAblation:
    def __init__(self, cell, units):
        self.units = units
        self.handle = cell.register_forward_hook(self.hook)

    def hook(self, module, args, output):
        hidden, memory = output
        memory = memory.clone()
        memory[:, self.units] = 0.0  # the unit forgets everything
        return hidden, memory

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.handle.remove()


def train(model, x, y, steps=60):
    opt = torch.optim.Adam(model.parameters(), lr=2e-2)
    for _ in range(steps):
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
    return loss.item()


@torch.no_grad()
def score(model, x, y):
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item()


def main():
    torch.manual_seed(0)
    x = (torch.rand(128, 10) < 0.4).float()
    y = x.cumsum(1).long() % 4
    model = Counter()
    print(f"training loss {train(model, x, y):.4f}")
    base = score(model, x, y)
    with CellAblation(model.cell, []):
        print(f"control, nothing ablated: {score(model, x, y) - base:+.4f}")
    effects = []
    for unit in range(model.cell.hidden_size):
        with CellAblation(model.cell, [unit]):
            effects.append(score(model, x, y) - base)
    order = sorted(range(len(effects)), key=lambda u: -effects[u])
    print("strongest units:", [(u, round(effects[u], 3)) for u in order[:4]])


if __name__ == "__main__":
    main()
