"""Head ablation study on a tiny vision transformer."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(16)


class EncoderBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln1 = nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.ln2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        y = self.ln1(x)
        y, _ = self.attn(y, y, y, need_weights=False)
        x = x + y
        return x + self.mlp(self.ln2(x))


class TinyViT(nn.Module):
    def __init__(self, dim=16, heads=4, depth=2, classes=3):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, 4, 4)
        self.cls = nn.Parameter(torch.randn(1, 1, dim))
        self.blocks = nn.Sequential(*[EncoderBlock(dim, heads) for _ in range(depth)])
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1)
        return self.head(self.blocks(x)[:, 0])


def mute(attn, head):
    """The input of the output projection is the concatenation of all heads: clear one slice."""
    width = attn.embed_dim // attn.num_heads

    columns = attn.out_proj.weight[:, head * width:(head + 1) * width]
    saved = columns.clone()
    columns.zero_()
    return columns, saved


model = TinyViT().eval()
images = torch.randn(32, 3, 16, 16)
with torch.no_grad():
    base = model(images)
    labels = base.argmax(1)
    print(f"baseline loss {F.cross_entropy(base, labels).item():.4f}")
    for b, block in enumerate(model.blocks):
        for h in range(block.attn.num_heads):
            columns, saved = mute(block.attn, h)
            logits = model(images)
            columns.copy_(saved)
            delta = F.cross_entropy(logits, labels) - F.cross_entropy(base, labels)
            shift = (logits - base).abs().mean()
            print(f"block {b} head {h}: loss change {delta.item():+.4f} logit shift {shift.item():.4f}")
