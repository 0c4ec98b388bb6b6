"""Mixture of experts with activation checkpointing; a hook counts how many tokens each expert gets."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(13)
EXPERTS = 4


class MoEBlock(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.router = nn.Linear(dim, EXPERTS, bias=False)
        self.experts = nn.ModuleList(nn.Linear(dim, dim) for _ in range(EXPERTS))

    def forward(self, x):
        h = self.norm(x)
        gate = self.router(h).softmax(-1)
        weight, index = gate.max(-1)
        y = torch.stack([e(h) for e in self.experts], -2)
        y = y.gather(-2, index[..., None, None].expand(*index.shape, 1, h.shape[-1]))[..., 0, :]
        return x + weight[..., None] * torch.tanh(y)


class Model(nn.Module):
    def __init__(self, vocab=50, dim=16, layers=2):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(MoEBlock(dim) for _ in range(layers))
        self.out = nn.Linear(dim, vocab)

    def forward(self, ids):
        x = self.emb(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.out(x)


model = Model()
load = torch.zeros(2, EXPERTS, dtype=torch.long)


def counter(layer):
    def hook(module, args, logits):
        # every token passes the router exactly once per forward
        load[layer] += torch.bincount(logits.argmax(-1).flatten(), minlength=EXPERTS)
    return hook


for i, block in enumerate(model.blocks):
    block.router.register_forward_hook(counter(i))

opt = torch.optim.Adam(model.parameters(), lr=1e-3)
tokens = 0
for step in range(5):
    ids = torch.randint(0, 50, (4, 11))
    loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    tokens += ids[:, :-1].numel()
print("tokens processed", tokens)
for i in range(2):
    share = [round(v, 3) for v in (load[i] / tokens).tolist()]
    print(f"layer {i}: tokens per expert {load[i].tolist()}  share {share}")
print(f"shares add up to {(load.sum(1) / tokens).tolist()}")
