"""Load an old checkpoint into a model whose attention layer was renamed inside."""
import torch
from torch import nn

torch.set_num_threads(1)


class Attention(nn.Module):
    """The three projections of the first version are one matrix today."""

    def __init__(self, dim):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim)
        self._register_load_state_dict_pre_hook(self._upgrade)

    @staticmethod
    def _upgrade(state_dict, prefix, local_metadata, strict, missing, unexpected, errors):
        names = ["query.weight", "key.weight", "value.weight"]
        if all(n in state_dict for n in names):
            state_dict["qkv.weight"] = torch.cat([state_dict.pop(n) for n in names])

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.proj(nn.functional.scaled_dot_product_attention(q, k, v))


class Encoder(nn.Module):
    def __init__(self, dim=16, depth=2, classes=3):
        super().__init__()
        self.layers = nn.ModuleList(Attention(dim) for _ in range(depth))
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x.mean(dim=1))


def old_checkpoint(dim=16, depth=2):
    g = torch.Generator().manual_seed(9)
    state = {}
    for i in range(depth):
        for name in ("query", "key", "value", "proj"):
            state[f"layers.{i}.{name}.weight"] = torch.randn(dim, dim, generator=g) * 0.3
        state[f"layers.{i}.proj.bias"] = torch.zeros(dim)
    return state


def main():
    torch.manual_seed(0)
    state = old_checkpoint()
    model = Encoder()
    # the head is new, therefore not strict
    model.load_state_dict(state, strict=False)

    for i, layer in enumerate(model.layers):
        q, k, v = layer.qkv.weight.detach().chunk(3)
        gaps = [(part - state[f"layers.{i}.{n}.weight"]).abs().max().item()
                for part, n in zip((q, k, v), ("query", "key", "value"))]
        print(f"layer {i}: largest gap to the checkpoint", " ".join(f"{g:.3f}" for g in gaps))
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        print("logits:", [round(v, 4) for v in model(x)[0].tolist()])


if __name__ == "__main__":
    main()
