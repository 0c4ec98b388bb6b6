"""Two training phases, the second in double precision, with a gradient ledger.

The ledger notes for every parameter how often its gradient buffer was written,
which is used later to weight the averaging of parameters.
"""
from collections import Counter

import torch
from torch import nn

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(5, 12)
        self.mid = nn.Linear(12, 12)
        self.out = nn.Linear(12, 1)

    def forward(self, x, skip_mid=False):
        h = torch.tanh(self.inp(x))
        if not skip_mid:
            h = h + torch.tanh(self.mid(h))
        return self.out(h)


class Ledger:
    def __init__(self):
        self.writes = Counter()
        self.nodes = []

    def attach(self, model):
        for name, p in model.named_parameters():
            # the node that adds into p.grad; keep it, or it is thrown away again
            node = p.expand_as(p).grad_fn.next_functions[0][0]
            node.register_hook(lambda *_, name=name: self.writes.update([name]))
            self.nodes.append(node)


def train(model, x, y, steps, lr):
    opt = torch.optim.SGD(model.parameters(), lr=lr)
    for step in range(steps):
        opt.zero_grad()
        loss = nn.functional.mse_loss(model(x, skip_mid=step % 2 == 1), y)
        loss.backward()
        opt.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    x = torch.randn(40, 5)
    y = x.pow(2).sum(dim=1, keepdim=True)
    model = Net()
    ledger = Ledger()
    ledger.attach(model)

    print(f"phase 1 loss {train(model, x, y, steps=6, lr=0.05):.4f}")
    first = Counter(ledger.writes)
    model.zero_grad(set_to_none=True)
    model.double()                      # polish with more digits
    print(f"phase 2 loss {train(model, x.double(), y.double(), steps=10, lr=0.01):.4f}")
    second = ledger.writes - first

    for name, _ in model.named_parameters():
        print(f"{name:11s} phase 1: {first[name]:2d}  phase 2: {second[name]:2d}")
    weight = sum(second.values()) / sum(ledger.writes.values())
    print(f"share of the second phase {weight:.2f}")


if __name__ == "__main__":
    main()
