"""Decoder with key/value caches as buffers. Checkpoints should not contain the caches."""
import io

import torch
from torch import nn


class CachedAttention(nn.Module):
    CACHES = ("key_cache", "value_cache")

    def __init__(self, dim, max_tokens):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        for name in self.CACHES:
            self.register_buffer(name, torch.zeros(max_tokens, dim))
        self.filled = 0
        self.register_state_dict_post_hook(self._drop_caches)

    @staticmethod
    def _drop_caches(module, state_dict, prefix, local_metadata):
        for name in module.CACHES:
            state_dict.pop(name, None)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        self.key_cache[self.filled] = k.detach()
        self.value_cache[self.filled] = v.detach()
        self.filled += 1
        keys, values = self.key_cache[:self.filled], self.value_cache[:self.filled]
        return torch.softmax(q @ keys.T / q.shape[-1] ** 0.5, dim=-1) @ values


class Layer(nn.Module):
    def __init__(self, dim, max_tokens):
        super().__init__()
        self.attn = CachedAttention(dim, max_tokens)
        self.mlp = nn.Linear(dim, dim)

    def forward(self, x):
        x = x + self.attn(x)
        return x + torch.tanh(self.mlp(x))


class Decoder(nn.Module):
    def __init__(self, dim=16, depth=2, max_tokens=512):
        super().__init__()
        self.layers = nn.ModuleList(Layer(dim, max_tokens) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Decoder()
    with torch.no_grad():
        for token in torch.randn(6, 16):
            model(token)
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    parameters = sum(p.numel() * 4 for p in model.parameters())
    print(f"checkpoint {buffer.tell()} bytes, parameters {parameters} bytes")
    print("caches in the checkpoint:", [k for k in model.state_dict() if "cache" in k])
