"""Expert load of a small mixture model trained with activation checkpointing."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)
EXPERTS = 4


class MoE(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.router = nn.Linear(dim, EXPERTS)
        self.experts = nn.ModuleList(nn.Linear(dim, dim) for _ in range(EXPERTS))

    def forward(self, x):
        gate = self.router(x).softmax(dim=-1)
        out = torch.stack([torch.relu(e(x)) for e in self.experts], dim=-1)
        return x + (out * gate.unsqueeze(-2)).sum(dim=-1)


class Model(nn.Module):
    def __init__(self, dim=12, depth=3):
        super().__init__()
        self.inp = nn.Linear(6, dim)
        self.blocks = nn.ModuleList(MoE(dim) for _ in range(depth))
        self.out = nn.Linear(dim, 2)

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.out(x)


class LoadMeter:
    """Adds up how many rows each router sends to each expert."""

    def __init__(self, model):
        self.load = torch.zeros(len(model.blocks), EXPERTS)
        for i, block in enumerate(model.blocks):
            block.router.register_forward_hook(lambda m, a, out, i=i: self.add(i, out))

    def add(self, i, logits):
        self.load[i] += torch.bincount(logits.detach().argmax(dim=-1), minlength=EXPERTS)


def main():
    torch.manual_seed(0)
    model = Model()
    meter = LoadMeter(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(96, 6)
    y = (x[:, 0] > 0).long()
    for start in range(0, 96, 32):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x[start:start + 32]), y[start:start + 32])
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():                 # one validation pass goes into the same table
        model(x[:32])
    for i, row in enumerate(meter.load.tolist()):
        print(f"block {i}", [int(v) for v in row])
    routed = int(meter.load[0].sum())
    print(f"rows routed per block: {routed}, capacity per expert {routed / EXPERTS:.0f}")


if __name__ == "__main__":
    main()
