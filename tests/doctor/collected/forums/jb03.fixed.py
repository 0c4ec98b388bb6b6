"""Record the mixer outputs of a hybrid sequence model, layer by layer, for a similarity analysis."""
import torch
import torch.nn as nn

torch.manual_seed(2)
torch.set_num_threads(1)


class ConvMixer(nn.Module):
    def __init__(self, dim, kernel=3):
        super().__init__()
        self.pad = kernel - 1
        self.conv = nn.Conv1d(dim, dim, kernel, groups=dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        h = nn.functional.pad(x.transpose(1, 2), (self.pad, 0))
        return self.proj(torch.tanh(self.conv(h)).transpose(1, 2))


class AttentionMixer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        h = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(h)


class ConvLayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mixer = ConvMixer(dim)

    def forward(self, x):
        return x + self.mixer(self.norm(x))


class AttentionLayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mixer = AttentionMixer(dim)

    def forward(self, x):
        return x + self.mixer(self.norm(x))


class HybridModel(nn.Module):
    def __init__(self, vocab=50, dim=24, pattern="CCAC"):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        kinds = {"C": ConvLayer, "A": AttentionLayer}
        self.layers = nn.ModuleList(kinds[c](dim) for c in pattern)
        self.lm_head = nn.Linear(dim, vocab)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(x)


def record_mixers(model, tokens):
    recorded = {}

    def make_hook(index):
        def hook(module, inputs, output):
            recorded[index] = output.detach().flatten(0, 1)
        return hook

    handles = [layer.mixer.register_forward_hook(make_hook(i)) for i, layer in enumerate(model.layers)]
    with torch.no_grad():
        model(tokens)
    for handle in handles:
        handle.remove()
    return recorded


def linear_cka(a, b):
    a, b = a - a.mean(0), b - b.mean(0)
    return ((a.T @ b).norm() ** 2 / ((a.T @ a).norm() * (b.T @ b).norm())).item()


def main():
    model = HybridModel().eval()
    tokens = torch.randint(0, 50, (8, 32))
    recorded = record_mixers(model, tokens)
    print(f"mixer outputs recorded: {len(recorded)} of {len(model.layers)}")
    indices = sorted(recorded)
    for i in indices:
        row = "  ".join(f"{linear_cka(recorded[i], recorded[j]):.3f}" for j in indices)
        print(f"layer {i}: {row}")


if __name__ == "__main__":
    main()
