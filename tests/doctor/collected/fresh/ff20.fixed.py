"""Residual-stream contributions: how much does each part of a small transformer write into the stream?"""
import torch
from torch import nn

torch.manual_seed(21)


class Block(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))

    def forward(self, x):
        h = self.ln1(x)
        x += self.attn(h, h, h, need_weights=False)[0]
        x += self.mlp(self.ln2(x))
        return x


class TinyTransformer(nn.Module):
    def __init__(self, vocab=40, dim=16, layers=3):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(layers))
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        x = self.emb(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


model = TinyTransformer().eval()
stream = {}


def save(name):
    def hook(module, args, output):
        stream[name] = output.detach().clone()
    return hook


model.emb.register_forward_hook(save("emb"))
for i, block in enumerate(model.blocks):
    block.register_forward_hook(save(f"block{i}"))

ids = torch.randint(0, 40, (4, 9))
with torch.no_grad():
    logits = model(ids)

order = list(stream)
print(f"stream norm at the end {stream[order[-1]].norm().item():.4f}")
written = []
for before, after in zip(order, order[1:]):
    delta = stream[after] - stream[before]
    written.append(delta.norm().item())
    print(f"{after} writes {written[-1]:.4f}")
# logit lens: how close is each intermediate prediction to the final one
with torch.no_grad():
    for name in order:
        agree = (model.head(stream[name]).argmax(-1) == logits.argmax(-1)).float().mean().item()
        print(f"{name}: agreement with the final prediction {agree:.3f}")
print("blocks that write nothing:", sum(w == 0 for w in written))
