"""Which attention heads matter? Ablate them one at a time after training."""
from contextlib import contextmanager

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)

DIM, HEADS, SEQ = 32, 4, 12


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(DIM)
        self.attn = nn.MultiheadAttention(DIM, HEADS, batch_first=True)
        self.norm2 = nn.LayerNorm(DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM))

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class TinyClassifier(nn.Module):
    def __init__(self, vocab=8, classes=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, DIM)
        self.pos = nn.Parameter(0.02 * torch.randn(SEQ + 1, DIM))
        self.cls = nn.Parameter(0.02 * torch.randn(DIM))
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(DIM, classes)

    def forward(self, tokens):
        x = self.embed(tokens)
        cls = self.cls.expand(len(tokens), 1, DIM)
        x = torch.cat([cls, x], dim=1) + self.pos
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, 0])


def make_data(count):
    tokens = torch.randint(0, 8, (count, SEQ))
    labels = ((tokens == 1).sum(dim=1) > (tokens == 2).sum(dim=1)).long()
    return tokens, labels


def train(model, tokens, labels, epochs=2):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        for xb, yb in zip(tokens.split(64), labels.split(64)):
            loss = F.cross_entropy(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@torch.no_grad()
def evaluate(model, tokens, labels):
    return F.cross_entropy(model(tokens), labels).item()


@contextmanager
def ablate_head(attn, head):
    size = attn.head_dim
    columns = slice(head * size, (head + 1) * size)

    def zero_head(module, args):
        merged = args[0].clone()
        merged[..., columns] = 0
        return (merged,)

    handle = attn.out_proj.register_forward_pre_hook(zero_head)
    try:
        yield
    finally:
        handle.remove()


def main():
    model = TinyClassifier()
    tokens, labels = make_data(1024)
    train(model, tokens, labels)
    model.eval()
    test_tokens, test_labels = make_data(256)
    base = evaluate(model, test_tokens, test_labels)
    print(f"baseline loss {base:.4f}")
    for layer, block in enumerate(model.blocks):
        for head in range(HEADS):
            with ablate_head(block.attn, head):
                loss = evaluate(model, test_tokens, test_labels)
            print(f"layer {layer} head {head}: loss change {loss - base:+.4f}")


if __name__ == "__main__":
    main()
