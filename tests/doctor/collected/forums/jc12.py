"""Gradient-weighted attention rollout for a small vision transformer."""
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(29)


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.attn_drop = nn.Dropout(0.1)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        attn = (q @ k.transpose(-2, -1) / (d // self.heads) ** 0.5).softmax(dim=-1)
        attn = self.attn_drop(attn)
        return self.proj((attn @ v).transpose(1, 2).reshape(b, n, d))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class TinyViT(nn.Module):
    def __init__(self, dim=32, depth=4, heads=4, classes=5):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, 4, stride=4)
        self.cls_token = nn.Parameter(0.5 * torch.randn(1, 1, dim))
        self.pos = nn.Parameter(0.5 * torch.randn(1, 17, dim))
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1) + self.pos
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, 0])


class AttentionGradRollout:
    def __init__(self, model, layer_name="attn_drop"):
        self.model = model
        self.attentions, self.gradients = [], []
        self.handles = []
        for name, module in model.named_modules():
            if name.endswith(layer_name):
                self.handles.append(module.register_forward_hook(self.get_attention))
                self.handles.append(module.register_full_backward_hook(self.get_gradient))

    def get_attention(self, module, inputs, output):
        self.attentions.append(output.detach())

    def get_gradient(self, module, grad_input, grad_output):
        self.gradients.append(grad_output[0].detach())

    def __call__(self, image, category):
        self.attentions.clear()
        self.gradients.clear()
        self.model.zero_grad()
        self.model(image)[0, category].backward()
        tokens = self.attentions[0].shape[-1]
        result, rows_used = torch.eye(tokens), []
        for attention, gradient in zip(self.attentions, self.gradients):
            fused = (attention * gradient).mean(dim=1)[0].clamp(min=0)
            rows_used.append(int((fused.sum(dim=-1) > 0).sum()))
            fused = fused + torch.eye(tokens)
            result = (fused / fused.sum(dim=-1, keepdim=True)) @ result
        return result[0, 1:].reshape(4, 4), rows_used

    def close(self):
        for handle in self.handles:
            handle.remove()


def main():
    model = TinyViT().eval()
    images = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    rollout = AttentionGradRollout(model)
    for i in range(3):
        mask, rows = rollout(images[i:i + 1], category=i)
        print(f"image {i}: strongest patch {mask.argmax().item()}, total {mask.sum().item():.5f}")
    rollout.close()
    for depth, count in enumerate(rows):
        print(f"block {depth}: query rows with relevance {count} of 17")


if __name__ == "__main__":
    main()
