"""Attention knockout: block chosen positions by editing a keyword argument of the attention."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)

DIM, HEADS, SEQ = 32, 4, 10


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.proj = nn.Linear(DIM, DIM)

    def forward(self, hidden_states, attention_mask=None):
        b, t, _ = hidden_states.shape
        qkv = self.qkv(hidden_states).view(b, t, 3, HEADS, DIM // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=attention_mask)
        return self.proj(out.transpose(1, 2).reshape(b, t, DIM))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(DIM)
        self.attn = SelfAttention()
        self.norm2 = nn.LayerNorm(DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 64), nn.GELU(), nn.Linear(64, DIM))

    def forward(self, x, attention_mask):
        x = x + self.attn(hidden_states=self.norm1(x), attention_mask=attention_mask)
        return x + self.mlp(self.norm2(x))


class KeyLookup(nn.Module):
    """Reads the token that stands at the position named by the last token."""

    def __init__(self, vocab=12):
        super().__init__()
        self.embed = nn.Embedding(vocab + SEQ, DIM)
        self.pos = nn.Parameter(0.1 * torch.randn(SEQ, DIM))
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.head = nn.Linear(DIM, vocab)

    def forward(self, tokens):
        x = self.embed(tokens) + self.pos
        mask = torch.ones(SEQ, SEQ, dtype=torch.bool).tril()
        for layer in self.layers:
            x = layer(x, attention_mask=mask)
        return self.head(x[:, -1])


class Knockout:
    """The last position may not look at `position` in the given layers."""

    def __init__(self, layers, position):
        self.position = position
        self.handles = [
            layer.attn.register_forward_pre_hook(self._edit, with_kwargs=True) for layer in layers
        ]

    def _edit(self, module, args, kwargs):
        mask = kwargs["attention_mask"].clone()
        mask[-1, self.position] = False
        return args, {**kwargs, "attention_mask": mask}

    def remove(self):
        for handle in self.handles:
            handle.remove()


def make_data(count):
    tokens = torch.randint(0, 12, (count, SEQ))
    wanted = torch.randint(0, 3, (count,))
    tokens[:, -1] = 12 + wanted
    return tokens, tokens.gather(1, wanted[:, None]).squeeze(1), wanted


def main():
    model = KeyLookup()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for step in range(220):
        tokens, labels, _ = make_data(96)
        loss = F.cross_entropy(model(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"training loss {loss.item():.3f}")

    model.eval()
    tokens, labels, wanted = make_data(600)
    for position in (None, 0, 1, 2, 5):
        knockout = Knockout(model.layers, position) if position is not None else None
        with torch.no_grad():
            correct = (model(tokens).argmax(dim=1) == labels).float()
        if knockout is not None:
            knockout.remove()
        per_target = [f"{correct[wanted == p].mean():.2f}" for p in range(3)]
        print(f"blocked position {position}: accuracy by wanted position {' '.join(per_target)}")


if __name__ == "__main__":
    main()
