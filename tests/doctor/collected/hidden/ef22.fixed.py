"""Saturation report of a recurrent model: which share of the units sits at the ends of its range?"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Tagger(nn.Module):
    """GRU cell unrolled by hand because the input of a step may depend on the last output."""

    def __init__(self, hidden=24):
        super().__init__()
        self.inp = nn.Linear(5, 12)
        self.cell = nn.GRUCell(12, hidden)
        self.out = nn.Linear(hidden, 2)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], self.cell.hidden_size)
        feats = torch.tanh(self.inp(x))
        for t in range(x.shape[1]):
            h = self.cell(feats[:, t], h)
        return self.out(h)


class SaturationLog:
    def __init__(self, model, kinds=(nn.GRUCell, nn.GRU, nn.LSTM)):
        self.current = {}
        self.total = {}
        self.handles = []
        for name, module in model.named_modules():
            if isinstance(module, kinds):
                self.handles.append(module.register_forward_hook(self.make(name)))

    def make(self, name):
        def hook(module, args, out):
            out = out[0] if isinstance(out, tuple) else out
            self.current.setdefault(name, []).append(out.detach())
        return hook

    def end_of_batch(self):
        # all hidden states of this batch
        for name, states in self.current.items():
            h = torch.cat(states)
            hit, n = self.total.get(name, (0, 0))
            self.total[name] = (hit + int((h.abs() > 0.8).sum()), n + h.numel())
        self.current.clear()

    def report(self):
        for name, (hit, n) in self.total.items():
            print(f"{name}: {n} values, saturated {100 * hit / n:.1f}%")


def make_batch(n, gen):
    x = torch.randn(n, 20, 5, generator=gen) * 3
    x[:, 8:] = 0.0  # short sequences, padded with zeros
    return x, (x[:, :8, 0].sum(1) > 0).long()


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(5)
    model = Tagger()
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(40):
        x, y = make_batch(64, gen)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"loss {loss.item():.3f}")
    log = SaturationLog(model)
    with torch.no_grad():
        for _ in range(5):
            model(make_batch(64, gen)[0])
            log.end_of_batch()
    log.report()


if __name__ == "__main__":
    main()
