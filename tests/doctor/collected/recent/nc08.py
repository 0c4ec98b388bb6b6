"""Dynamic sparse training of hidden units: drop weak units, regrow the most wanted ones.

Half of the hidden units are switched off by a mask. Every few steps the active units with
the smallest outgoing weights are dropped and as many inactive units are switched on: those
for which the loss asks most strongly for a non-zero output (largest mean |dL/dh|).
"""
import torch
from torch import nn

torch.set_num_threads(1)


class SparseHidden(nn.Module):
    def __init__(self, d_in, hidden, d_out, active):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(d_in, hidden), nn.Linear(hidden, d_out)
        mask = torch.zeros(hidden)
        mask[torch.randperm(hidden)[:active]] = 1.0
        self.register_buffer("mask", mask)
        self.demand = torch.zeros(hidden)

    def record(self, grad):
        self.demand += grad.abs().mean(0)

    def forward(self, x):
        h = nn.functional.gelu(self.fc1(x))
        if self.training:
            h.register_hook(self.record)
        h.mul_(self.mask)
        return self.fc2(h)

    @torch.no_grad()
    def rewire(self, count):
        strength = self.fc2.weight.norm(dim=0)
        on, off = self.mask.bool(), ~self.mask.bool()
        drop = strength.masked_fill(off, float("inf")).topk(count, largest=False).indices
        demand = self.demand.masked_fill(on, -1.0)
        grow = demand.topk(count).indices
        grow = grow[demand[grow] > 1e-8]
        drop = drop[: len(grow)]
        self.mask[drop], self.mask[grow] = 0.0, 1.0
        self.demand.zero_()
        return len(grow)


def make_data(n=768):
    g = torch.Generator().manual_seed(4)
    x = torch.randn(n, 8, generator=g)
    y = torch.stack([torch.sin(2 * x[:, 0]) + x[:, 1], x[:, 2] * x[:, 3]], dim=1)
    return x, y


def main():
    torch.manual_seed(0)
    x, y = make_data()
    net = SparseHidden(8, 64, 2, active=16)
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    grown, ever = 0, net.mask.clone()
    for step in range(1, 241):
        idx = torch.randint(0, len(x), (96,))
        loss = nn.functional.mse_loss(net(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0 and step <= 160:
            grown += net.rewire(count=2)
            ever = torch.maximum(ever, net.mask)
    net.eval()
    with torch.no_grad():
        final = nn.functional.mse_loss(net(x), y).item()
    print(f"final loss {final:.4f}   active units {int(net.mask.sum())}")
    print(f"units switched on during training: {grown}")
    print(f"units that were active at some time: {int(ever.sum())} of 64")


if __name__ == "__main__":
    main()
