"""LoRA adapters on a frozen transformer, with or without gradient checkpointing."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="")
parser.add_argument("--checkpoint", action="store_true")
args = parser.parse_args()
plant = args.plant
torch.set_num_threads(1)
torch.manual_seed(81)
step = 0


class Lora(nn.Module):
    def __init__(self):
        super().__init__()
        self.base, self.drop = nn.Linear(16, 16).requires_grad_(False), nn.Dropout(0.1)
        self.down, self.up = nn.Linear(16, 4, bias=False), nn.Linear(4, 16, bias=False)
        self.scale = 2.0

    def forward(self, x):
        return self.base(x) + self.scale * self.up(self.down(self.drop(x)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.q, self.v = nn.LayerNorm(16).requires_grad_(False), Lora(), Lora()
        self.k, self.o = (nn.Linear(16, 16).requires_grad_(False) for _ in range(2))
        self.mlp = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)).requires_grad_(False)
        self.causal = True

    def forward(self, x):
        y = self.norm1(x)
        q, k, v = (f(y).unflatten(2, (2, 8)).transpose(1, 2) for f in (self.q, self.k, self.v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).flatten(2))
        return x + self.mlp(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(20, 16), nn.Linear(16, 20)
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            keep = not (plant == "rng" and step == 5)
            x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=keep) if args.checkpoint else block(x)
        return self.head(x)


net = Net()
groups = [[p for name, p in net.named_parameters() if (".up." in name) == up] for up in (False, True)]
optimizer = torch.optim.AdamW([{"params": groups[0], "lr": 2e-3}, {"params": groups[1], "lr": 1e-2}])
g = torch.Generator().manual_seed(82)
for step in range(15):
    x = torch.randint(20, (4, 9), generator=g).cumsum(1) % 20
    if plant == "base" and step == 5:
        net.blocks[1].v.base.weight.data[2, 2] += 0.01
    net.blocks[0].v.scale = 1.9 if plant == "scale" and step >= 7 else 2.0
    net.blocks[1].causal = not (plant == "causal" and step >= 3)
    torch.manual_seed(1000 + step + (plant == "drop-seed" and step == 6) * 500)
    if plant == "up-lr" and step >= 8:
        optimizer.param_groups[1]["lr"] = 5e-3
    if plant == "unfreeze" and step >= 9:
        net.blocks[1].k.weight.requires_grad_(True)
    loss = F.cross_entropy(net(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
