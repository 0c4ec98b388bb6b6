"""Importance of attention heads: silence one head in front of the output projection."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class SetClassifier(nn.Module):
    def __init__(self, dim=32, heads=4):
        super().__init__()
        self.inp = nn.Linear(6, dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, 3)

    def forward(self, x):
        x = self.inp(x)
        a, _ = self.attn(x, x, x, need_weights=False)
        return self.out(self.norm(x + a).max(1).values)


def silence(proj, head, head_dim):
    """The attention uses the projection's weight directly: zero the columns of the head in it."""
    saved = proj.weight.clone()
    proj.weight[:, head * head_dim:(head + 1) * head_dim] = 0.0
    return saved


@torch.no_grad()
def head_importance(model, x, y):
    model.eval()
    heads = model.attn.num_heads
    head_dim = model.attn.embed_dim // heads
    base = F.cross_entropy(model(x), y).item()
    effects = []
    for head in range(heads):
        saved = silence(model.attn.out_proj, head, head_dim)
        effects.append(F.cross_entropy(model(x), y).item() - base)
        model.attn.out_proj.weight.copy_(saved)
    return base, effects


def make_data(n, gen):
    x = torch.randn(n, 7, 6, generator=gen)
    # the label depends on a relation between the elements of the set
    gram = (x[:, :, None] * x[:, None]).sum(-1)
    strongest = (gram - 100 * torch.eye(7)).flatten(1).max(1).values
    return x, torch.bucketize(strongest, strongest.quantile(torch.tensor([0.33, 0.66])))


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(6)
    x, y = make_data(300, gen)
    model = SetClassifier()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(100):
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    base, effects = head_importance(model, x, y)
    print(f"loss with all heads {base:.4f}")
    for head, effect in enumerate(effects):
        print(f"  head {head}: {effect:+.4f}")
    prunable = [h for h, e in enumerate(effects) if e < 1e-3]
    print("heads that can be pruned:", prunable)


if __name__ == "__main__":
    main()
