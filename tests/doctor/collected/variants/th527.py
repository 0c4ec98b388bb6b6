"""Transformer encoder for padded sequences with noise injected into the hidden states during training."""
import torch
from torch import nn


class EncoderLayer(nn.Module):
    def __init__(self, dim=16, heads=2):
        super().__init__()
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))

    def forward(self, x, padding=None):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, key_padding_mask=padding, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Encoder(nn.Module):
    def __init__(self, vocab=30, dim=16, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(EncoderLayer(dim) for _ in range(depth))
        self.out = nn.Linear(dim, 2)

    def forward(self, tokens, padding):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, padding)
        return self.out(x[:, 0])


class NoiseInjector:
    def __init__(self, sigma):
        self.sigma = sigma

    def install(self, layers):
        return [layer.register_forward_pre_hook(self) for layer in layers]

    def __call__(self, module, args):
        hidden = args[0]
        sigma = self.sigma if module.training else 0.0
        return hidden + sigma * torch.randn_like(hidden)


def main():
    torch.manual_seed(0)
    model = Encoder()
    handles = NoiseInjector(0.05).install(model.layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    padding = torch.arange(10).expand(8, 10) >= 6
    for _ in range(5):
        tokens = torch.randint(1, 30, (8, 10)).masked_fill(padding, 0)
        loss = nn.functional.cross_entropy(model(tokens, padding), (tokens[:, 0] > 15).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        first = model(tokens, padding)
        second = model(tokens.masked_fill(padding, 7), padding)
    print(f"loss {loss.item():.3f}, {len(handles)} noisy layers")
    print(f"logits change by {(first - second).abs().max().item():.4f} if the padding tokens change")


if __name__ == "__main__":
    main()
