"""Gradient-weighted attention maps of a small text classifier."""
import math

import torch
import torch.nn.functional as F
from torch import nn


class ExplainableAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.attn_map, self.attn_grad = None, None

    def _save_grad(self, grad):
        self.attn_grad = grad.detach()

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1)
        self.attn_map = weights.mean(dim=1)
        if self.attn_map.requires_grad:
            self.attn_map.register_hook(self._save_grad)
        mixed = (weights @ v).transpose(1, 2).reshape(b, t, d)
        return x + self.proj(mixed)

    def relevance(self):
        if self.attn_grad is None:
            return None
        return F.relu(self.attn_map.detach() * self.attn_grad).mean(0)


class Classifier(nn.Module):
    def __init__(self, vocab=50, dim=16, layers=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(ExplainableAttention(dim, heads=4) for _ in range(layers))
        self.cls = nn.Linear(dim, 2)

    def forward(self, ids):
        h = self.embed(ids)
        for layer in self.layers:
            h = layer(h)
        return self.cls(h.mean(1))


def main():
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    ids = torch.randint(0, 50, (32, 10))
    labels = (ids[:, 0] > 25).long()
    for epoch in range(5):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids), labels)
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")
    for i, layer in enumerate(model.layers):
        print(f"layer {i} map {tuple(layer.attn_map.shape)} relevance {layer.relevance()}")


if __name__ == "__main__":
    main()
