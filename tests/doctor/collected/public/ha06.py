"""Attention rollout for a small vision transformer."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

IMAGE = 16
PATCH = 4
DIM = 32


class Attention(nn.Module):
    def __init__(self, dim, heads=4, fused_attn=True):
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.fused_attn = fused_attn
        self.qkv = nn.Linear(dim, dim * 3)
        self.attn_drop = nn.Dropout(0.1)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        if self.fused_attn:
            x = F.scaled_dot_product_attention(q, k, v, dropout_p=self.attn_drop.p if self.training else 0.0)
        else:
            attn = (q * self.scale) @ k.transpose(-2, -1)
            attn = self.attn_drop(attn.softmax(dim=-1))
            x = attn @ v
        return self.proj(x.transpose(1, 2).reshape(b, n, c))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = Attention(dim)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, dim * 2), nn.GELU(), nn.Linear(dim * 2, dim))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, classes=2, depth=3):
        super().__init__()
        self.patch_embed = nn.Conv2d(1, DIM, PATCH, stride=PATCH)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, DIM))
        self.pos_embed = nn.Parameter(torch.randn(1, (IMAGE // PATCH) ** 2 + 1, DIM) * 0.02)
        self.blocks = nn.ModuleList([Block(DIM) for _ in range(depth)])
        self.head = nn.Linear(DIM, classes)

    def forward(self, images):
        x = self.patch_embed(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, 0])


class AttentionRollout:
    def __init__(self, model):
        self.model = model

    @torch.no_grad()
    def __call__(self, image):
        attentions = []
        handles = [
            block.attn.attn_drop.register_forward_hook(lambda module, args, output: attentions.append(output))
            for block in self.model.blocks
        ]
        self.model(image)
        for handle in handles:
            handle.remove()
        tokens = self.model.pos_embed.shape[1]
        rollout = torch.eye(tokens)
        for attention in attentions:
            mixed = attention.mean(dim=1)[0] + torch.eye(tokens)
            rollout = mixed / mixed.sum(dim=-1, keepdim=True) @ rollout
        return rollout[0, 1:].reshape(IMAGE // PATCH, IMAGE // PATCH)


def main():
    model = VisionTransformer()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(40):
        images, labels = torch.randn(32, 1, IMAGE, IMAGE) * 0.3, torch.randint(0, 2, (32,))
        images[labels == 1, :, 4:8, 4:8] += 2.0
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    print(f"final loss {loss.item():.4f}")

    rollout = AttentionRollout(model)
    relevance = rollout(images[labels == 1][:1])
    for row in relevance:
        print("  ".join(f"{value:.3f}" for value in row.tolist()))
    print(f"relevance over all patches: {relevance.sum():.3f}")


if __name__ == "__main__":
    main()
