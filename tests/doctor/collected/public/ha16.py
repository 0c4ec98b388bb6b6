"""Look at the pre-activations of the feed-forward neurons of a small sentence encoder."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB = 100
DIM = 32
TOPICS = 4


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm2 = nn.LayerNorm(dim)
        self.ffn = nn.Sequential(
            nn.Linear(dim, 4 * dim),
            nn.ReLU(inplace=True),
            nn.Linear(4 * dim, dim),
        )

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.ffn(self.norm2(x))


class SentenceEncoder(nn.Module):
    def __init__(self, layers=3):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList([EncoderLayer(DIM) for _ in range(layers)])
        self.classifier = nn.Linear(DIM, TOPICS)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.classifier(x.mean(dim=1))


class ActivationStore:
    def __init__(self, modules):
        self.activations = {}
        self.handles = [m.register_forward_hook(self.hook_for(name)) for name, m in modules.items()]

    def hook_for(self, name):
        def hook(module, args, output):
            self.activations[name] = output.detach()

        return hook

    def close(self):
        for handle in self.handles:
            handle.remove()


def make_batch(n, generator):
    topics = torch.randint(0, TOPICS, (n,), generator=generator)
    tokens = torch.randint(0, VOCAB // TOPICS, (n, 10), generator=generator)
    return tokens + topics[:, None] * (VOCAB // TOPICS), topics


def train(model, steps=30):
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(steps):
        tokens, topics = make_batch(32, generator)
        loss = F.cross_entropy(model(tokens), topics)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    model = SentenceEncoder()
    print(f"training loss {train(model):.4f}")
    model.eval()

    store = ActivationStore({f"layer {i}": layer.ffn[0] for i, layer in enumerate(model.layers)})
    tokens, _ = make_batch(64, torch.Generator().manual_seed(2))
    with torch.no_grad():
        model(tokens)
    store.close()

    for name, pre in store.activations.items():
        print(
            f"{name}: mean pre-activation {pre.mean():+.4f}, lowest {pre.min():+.4f}, "
            f"negative share {(pre < 0).float().mean():.3f}"
        )


if __name__ == "__main__":
    main()
