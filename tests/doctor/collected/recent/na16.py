"""Path patching in a small transformer with named hook points: remove what one
token position feeds INTO an attention layer, leaving its residual stream alone."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB, DIM, HEADS, LAYERS, SEQ = 30, 32, 4, 2, 9


class HookPoint(nn.Identity):
    """Marks an activation so that it can be read or edited by name."""


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.hook_attn_in, self.hook_mlp_in = HookPoint(), HookPoint()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))
        self.hook_resid_post = HookPoint()

    def attend(self, x):
        b, t, _ = x.shape
        q, k, v = (z.view(b, t, HEADS, -1).transpose(1, 2) for z in self.qkv(x).chunk(3, dim=-1))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(out.transpose(1, 2).reshape(b, t, DIM))

    def forward(self, resid):
        resid = resid + self.attend(self.norm1(self.hook_attn_in(resid)))
        resid = resid + self.mlp(self.norm2(self.hook_mlp_in(resid)))
        return self.hook_resid_post(resid)


class HookedLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.pos = nn.Embedding(VOCAB, DIM), nn.Embedding(SEQ, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.unembed = nn.Linear(DIM, VOCAB)

    def forward(self, ids):
        x = self.embed(ids) + self.pos.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.unembed(x)

    @torch.no_grad()
    def run_with_cache(self, ids, edits=()):
        cache, handles = {}, []
        for name, fn in edits:
            handles.append(self.get_submodule(name).register_forward_hook(fn))
        for name, module in self.named_modules():
            if isinstance(module, HookPoint):
                handles.append(module.register_forward_hook(lambda m, a, out, n=name: cache.update({n: out})))
        try:
            return self(ids).log_softmax(-1), cache
        finally:
            for handle in handles:
                handle.remove()


def zero_position(position):
    def hook(module, args, output):
        output[:, position] = 0.0
        return output

    return hook


model = HookedLM()
optim = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(80):
    ids = torch.randint(0, VOCAB, (32, SEQ))
    ids[:, -1] = ids[:, 2]
    logits = model(ids[:, :-1])
    loss = F.cross_entropy(logits[:, -1], ids[:, -1]) + F.cross_entropy(logits[:, 4], ids[:, 4])
    optim.zero_grad()
    loss.backward()
    optim.step()

ids = torch.randint(0, VOCAB, (64, SEQ - 1))
clean, clean_cache = model.run_with_cache(ids)
print(f"copy accuracy {(clean[:, -1].argmax(-1) == ids[:, 2]).float().mean():.2f}")
for layer in range(LAYERS):
    name = f"layers.{layer}.hook_attn_in"
    patched, cache = model.run_with_cache(ids, [(name, zero_position(2))])
    effect = (clean.exp() * (clean - patched)).sum(-1).mean(0)
    print(f"{name}: KL at last position {effect[-1]:.4f}, at the edited position {effect[2]:.4f}")

upstream = "layers.0.hook_resid_post"
same = torch.equal(cache[upstream], clean_cache[upstream])
print(f"output of layer 0 is the same in both runs: {same}")
