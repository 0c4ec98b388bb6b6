"""Count how many tokens each expert gets; blocks are checkpointed to save memory."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)


class MoEBlock(nn.Module):
    def __init__(self, d=16, experts=4):
        super().__init__()
        self.router = nn.Linear(d, experts)
        self.experts = nn.ModuleList(nn.Linear(d, d) for _ in range(experts))

    def forward(self, x):
        gate = self.router(x).softmax(-1)
        out = torch.stack([e(x) for e in self.experts], -1)
        return x + (out * gate.unsqueeze(-2)).sum(-1)


class Model(nn.Module):
    def __init__(self, depth=4):
        super().__init__()
        self.blocks = nn.ModuleList(MoEBlock() for _ in range(depth))
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        for i, b in enumerate(self.blocks):
            if self.training and i >= 2:
                x = checkpoint(b, x, use_reentrant=False)
            else:
                x = b(x)
        return self.head(x)


model = Model()
load = torch.zeros(4, 4)
for i, b in enumerate(model.blocks):
    def count(mod, args, out, i=i):
        load[i] += torch.bincount(out.argmax(-1).flatten(), minlength=4)
    b.router.register_forward_hook(count)

opt = torch.optim.SGD(model.parameters(), lr=0.01)
tokens = 0
for step in range(5):
    x = torch.randn(8, 25, 16)
    tokens += x.shape[0] * x.shape[1]
    loss = model(x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

print("tokens seen:", tokens)
for i in range(4):
    print(f"block {i}: routed {int(load[i].sum())} tokens, shares {[round(v, 2) for v in (load[i] / tokens).tolist()]}")
