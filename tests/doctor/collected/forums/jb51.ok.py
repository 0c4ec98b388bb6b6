"""Attention maps of nn.TransformerEncoder: ask the attention modules for their weights through hooks."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(21)
torch.set_num_threads(1)


class TokenClassifier(nn.Module):
    def __init__(self, vocab=40, dim=32, heads=4, layers=2, classes=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.position = nn.Parameter(0.1 * torch.randn(1, 16, dim))
        layer = nn.TransformerEncoderLayer(dim, heads, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(dim, classes)

    def forward(self, tokens):
        x = self.embed(tokens) + self.position[:, :tokens.shape[1]]
        return self.head(self.encoder(x).mean(dim=1))


class AttentionMaps:
    """While active, every self-attention returns its weights per head and they are kept."""

    def __init__(self, encoder):
        self.modules = [layer.self_attn for layer in encoder.layers]

    def __enter__(self):
        self.maps = [[] for _ in self.modules]
        self.handles = []
        for store, module in zip(self.maps, self.modules):
            self.handles.append(module.register_forward_pre_hook(self.ask_for_weights, with_kwargs=True))
            self.handles.append(module.register_forward_hook(self.keep_in(store)))
        return self

    def __exit__(self, *exc):
        for handle in self.handles:
            handle.remove()

    @staticmethod
    def ask_for_weights(module, args, kwargs):
        return args, {**kwargs, "need_weights": True, "average_attn_weights": False}

    @staticmethod
    def keep_in(store):
        def hook(module, args, output):
            store.append(output[1].detach())
        return hook

    def stacked(self):
        return [torch.cat(store) for store in self.maps]


def make_data(n=240, length=12):
    tokens = torch.randint(3, 40, (n, length))
    labels = torch.randint(0, 3, (n,))
    where = torch.randint(0, length, (n,))
    tokens[torch.arange(n), where] = labels
    return tokens, labels, where


def main():
    model = TokenClassifier()
    tokens, labels, where = make_data()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(12):
        for i in range(0, len(tokens), 40):
            loss = F.cross_entropy(model(tokens[i:i + 40]), labels[i:i + 40])
            opt.zero_grad()
            loss.backward()
            opt.step()
    print(f"final loss {loss.item():.4f}")

    model.eval()
    with torch.no_grad():
        plain = model(tokens)
        with AttentionMaps(model.encoder) as recorder:
            logits = torch.cat([model(part) for part in tokens.split(60)])
        after = model(tokens)
    print(f"same prediction with maps: {torch.allclose(plain, logits, atol=1e-4)}, "
          f"after removal: {torch.allclose(plain, after, atol=1e-6)}")

    for index, weights in enumerate(recorder.stacked()):
        on_key = weights[torch.arange(len(tokens)), :, :, where].mean().item()
        total = weights.sum(-1).mean().item()
        print(f"layer {index}: maps {tuple(weights.shape)} row sum {total:.3f} attention on the key token {on_key:.3f}")


if __name__ == "__main__":
    main()
