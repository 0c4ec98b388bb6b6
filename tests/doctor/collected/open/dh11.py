"""All four state-dict hooks at work: rename on load, quantise on save, forgive adapters, note the version."""
import torch
from torch import nn

torch.set_num_threads(1)


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim)
        self.lora = nn.Parameter(torch.zeros(dim, 2))
        self.saves = 0
        self.register_load_state_dict_pre_hook(self.upgrade)
        self.register_load_state_dict_post_hook(self.forgive)
        self.register_state_dict_pre_hook(self.note)
        self.register_state_dict_post_hook(self.shrink)

    @staticmethod
    def upgrade(module, state_dict, prefix, local_metadata, strict, missing, unexpected, errors):
        names = [f"{prefix}{n}.weight" for n in ("query", "key", "value")]
        if all(n in state_dict for n in names):
            state_dict[prefix + "qkv.weight"] = torch.cat([state_dict.pop(n) for n in names])

    @staticmethod
    def forgive(module, incompatible):
        incompatible.missing_keys[:] = [k for k in incompatible.missing_keys if not k.endswith(".lora")]

    @staticmethod
    def note(module, prefix, keep_vars):
        module.saves += 1

    @staticmethod
    def shrink(module, state_dict, prefix, local_metadata):
        for name in ("qkv.weight", "proj.weight"):
            state_dict[prefix + name] = state_dict[prefix + name].half()      # a new tensor, not the live one

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        out = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.proj(out + (out @ self.lora) @ self.lora.T)


class Encoder(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.layers = nn.ModuleList(Attention(dim) for _ in range(2))
        self.head = nn.Linear(dim, 3)

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x.mean(dim=1))


def old_checkpoint(dim=16):
    g = torch.Generator().manual_seed(9)
    state = {"head.weight": torch.randn(3, dim, generator=g), "head.bias": torch.zeros(3)}
    for i in range(2):
        for name in ("query", "key", "value", "proj"):
            state[f"layers.{i}.{name}.weight"] = torch.randn(dim, dim, generator=g) * 0.3
        state[f"layers.{i}.proj.bias"] = torch.zeros(dim)
    return state


def main():
    torch.manual_seed(0)
    state = old_checkpoint()
    model = Encoder()
    print("load:", model.load_state_dict(state))
    print("keys of the caller untouched:", "layers.0.query.weight" in state)
    x = torch.randn(2, 5, 16)
    before = model(x).detach()
    saved = model.state_dict()
    print("types on disk:", sorted({str(v.dtype) for v in saved.values()}))
    print("model unchanged by saving:", torch.equal(before, model(x).detach()))
    print("saves per layer:", [layer.saves for layer in model.layers])


if __name__ == "__main__":
    main()
