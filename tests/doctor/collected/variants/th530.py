"""Causal tracing: damp the attention output of one layer and compare the predictions."""
from contextlib import contextmanager

import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))


class Decoder(nn.Module):
    def __init__(self, vocab=25, dim=16, depth=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.attention = nn.ModuleList(SelfAttention(dim) for _ in range(depth))
        self.mlp = nn.ModuleList(nn.Sequential(nn.Linear(dim, dim), nn.GELU()) for _ in range(depth))
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens):
        x = self.embed(tokens)
        for attention, mlp in zip(self.attention, self.mlp):
            x = x + attention(x)
            x = x + mlp(x)
        return self.head(x)


class Damper:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, module, args, output):
        hidden = output[0]
        return hidden * self.factor


@contextmanager
def damped(model, layer, factor):
    handle = model.attention[layer].register_forward_hook(Damper(factor))
    try:
        yield model
    finally:
        handle.remove()


@torch.no_grad()
def main():
    torch.manual_seed(0)
    model = Decoder().eval()
    tokens = torch.randint(25, (4, 8))
    clean = model(tokens)
    for factor in (1.0, 0.5, 0.0):
        with damped(model, layer=1, factor=factor):
            changed = model(tokens)
        shift = (changed - clean).abs().amax(dim=(1, 2))
        print(f"factor {factor}: shift of the logits per sample", [round(v, 4) for v in shift.tolist()])


if __name__ == "__main__":
    main()
