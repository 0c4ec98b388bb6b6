"""Zero-ablate the output projection of each attention layer and measure the effect."""
import torch
from torch import nn

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, d=32, heads=4):
        super().__init__()
        self.attn = nn.MultiheadAttention(d, heads, batch_first=True)
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.ff = nn.Sequential(nn.Linear(d, 64), nn.GELU(), nn.Linear(64, d))

    def forward(self, x):
        h = self.ln1(x)
        a, _ = self.attn(h, h, h)
        x = x + a
        return x + self.ff(self.ln2(x))


class Encoder(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.blocks = nn.Sequential(*[Block() for _ in range(depth)])
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        return self.head(self.blocks(x).mean(1))


def knock_out(module, args, output):
    return torch.zeros_like(output)


model = Encoder().train()
x = torch.randn(16, 10, 32)
base = model(x).detach()
scores = {}
for i, block in enumerate(model.blocks):
    for part in ("attn.out_proj", "ff.2"):
        target = block.get_submodule(part)
        handle = target.register_forward_hook(knock_out)
        out = model(x).detach()
        handle.remove()
        scores[f"{i}.{part}"] = (out - base).norm().item()

for name, s in scores.items():
    print(f"ablate block {name:16s} change of logits {s:.5f}")
print("conclusion: most important part is", max(scores, key=scores.get))
