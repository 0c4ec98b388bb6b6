"""Expert load under activation checkpointing, counted once per batch."""
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
    def __init__(self, dim=12, depth=2):
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
    """The forward is repeated inside backward; those calls are recognised and left out."""

    def __init__(self, model):
        self.load = torch.zeros(len(model.blocks), EXPERTS, dtype=torch.long)
        self.repeats = 0
        for i, block in enumerate(model.blocks):
            block.router.register_forward_hook(lambda m, a, out, i=i: self.add(i, out))

    def add(self, i, logits):
        if torch._C._current_graph_task_id() != -1:      # we are inside a backward pass
            self.repeats += 1
            return
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
        nn.functional.cross_entropy(model(x[start:start + 32]), y[start:start + 32]).backward()
        opt.step()
    for i, row in enumerate(meter.load.tolist()):
        print(f"block {i}", row, "sum", sum(row))
    print("repeated forwards seen and ignored:", meter.repeats)


if __name__ == "__main__":
    main()
