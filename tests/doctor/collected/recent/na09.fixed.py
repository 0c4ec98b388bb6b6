"""Count multiply-accumulate operations per scope while a small transformer is
trained with activation checkpointing (recomputation is counted as work)."""
from collections import Counter

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB, DIM, SEQ, STEPS = 40, 32, 12, 3


class Mixer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = Mixer(dim)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.mlp(self.norm2(x))


class TinyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.block0, self.block1 = Block(DIM), Block(DIM)
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, ids):
        x = self.embed(ids)
        for block in (self.block0, self.block1):
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)


class MacCounter:
    def __init__(self, model):
        self.scope, self.macs = [], Counter()
        for name, module in model.named_modules():
            if name:
                module.register_forward_pre_hook(self._enter(name.rsplit(".", 1)[-1]))
                module.register_forward_hook(self._leave, always_call=True)

    def _enter(self, label):
        def hook(module, args):
            self.scope.append(label)

        return hook

    def _leave(self, module, args, output):
        if isinstance(module, nn.Linear):
            self.macs["/".join(self.scope)] += args[0].numel() * module.out_features
        self.scope.pop()


model = TinyLM()
counter = MacCounter(model)
optim = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(STEPS):
    start = torch.randint(0, VOCAB, (8, 1))
    ids = (start + torch.arange(SEQ + 1)) % VOCAB
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    optim.zero_grad()
    loss.backward()
    optim.step()

print(f"loss {loss.item():.3f}")
for scope, macs in sorted(counter.macs.items()):
    print(f"{macs / 1e6:8.3f} MMAC  {scope}")
blocks = sum(m for s, m in counter.macs.items() if s.startswith("block"))
print(f"{len(counter.macs)} scopes, {blocks / sum(counter.macs.values()):.1%} of the work inside blocks")
