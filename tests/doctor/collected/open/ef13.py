"""Add a concept direction in front of one block of a causal transformer and look at the next-token loss."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class CausalBlock(nn.Module):
    def __init__(self, dim, heads=2):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x, mask=None):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class TinyLM(nn.Module):
    def __init__(self, vocab=30, dim=32, depth=3, length=16):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(torch.zeros(length, dim))
        self.blocks = nn.ModuleList(CausalBlock(dim) for _ in range(depth))
        self.out = nn.Linear(dim, vocab)

    def forward(self, ids):
        n = ids.shape[1]
        mask = torch.full((n, n), float("-inf")).triu(1)
        x = self.tok(ids) + self.pos[:n]
        for block in self.blocks:
            x = block(x, mask)
        return self.out(x)


def steer(vector, strength):
    def pre_hook(module, args):
        # shift the residual stream that enters the block
        return args[0] + strength * vector
    return pre_hook


@torch.no_grad()
def sees_the_future(model, ids):
    """Change the last token; the logits of earlier positions must not notice."""
    other = ids.clone()
    other[:, -1] = (other[:, -1] + 7) % 30
    return (model(ids)[:, :-1] - model(other)[:, :-1]).abs().max().item() > 1e-5


def main():
    torch.manual_seed(0)
    start = torch.randint(0, 30, (64, 1))
    step = torch.randint(1, 4, (64, 1))
    ids = (start + step * torch.arange(12)) % 30
    model = TinyLM()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(40):
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    print(f"trained, loss {loss.item():.3f}, looks ahead: {sees_the_future(model, ids)}")
    direction = F.normalize(model.out.weight[5].detach(), dim=0)
    for strength in (0.0, 1.0, 3.0):
        handle = model.blocks[1].register_forward_pre_hook(steer(direction, strength))
        p5 = model(ids).softmax(-1)[..., 5].mean().item()
        print(f"strength {strength}: mean p(token 5) {p5:.4f}, looks ahead: {sees_the_future(model, ids)}")
        handle.remove()


if __name__ == "__main__":
    main()
