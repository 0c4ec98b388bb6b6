"""Track how the residual stream grows through the depth of a small MLP-mixer."""
import torch
import torch.nn as nn


class MixerBlock(nn.Module):
    def __init__(self, tokens, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.token_mix = nn.Linear(tokens, tokens)
        self.channel_mix = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.token_mix(self.norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channel_mix(self.norm(x))


class Mixer(nn.Module):
    def __init__(self, tokens=8, dim=16, depth=6, classes=4):
        super().__init__()
        self.inp = nn.Linear(5, dim)
        self.blocks = nn.ModuleList(MixerBlock(tokens, dim) for _ in range(depth))
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


def watch_stream(model):
    # one list of norms for each block, filled while the model runs
    table = [[] for _ in model.blocks]
    handles = []
    for i, block in enumerate(model.blocks):
        handles.append(block.register_forward_hook(
            lambda mod, args, out, i=i: table[i].append(out.norm(dim=-1).mean().item())))
    return table, handles


def train(model, data, labels, epochs=5):
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(epochs):
        total = 0.0
        for k in range(0, len(data), 32):
            loss = nn.functional.cross_entropy(model(data[k:k + 32]), labels[k:k + 32])
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / (len(data) // 32):.3f}")


def main():
    torch.manual_seed(0)
    data = torch.randn(256, 8, 5)
    labels = data.mean(1)[:, :4].argmax(-1)
    model = Mixer()
    table, handles = watch_stream(model)
    train(model, data, labels)
    for h in handles:
        h.remove()
    print("mean norm of the stream after each block")
    for i, norms in enumerate(table):
        print(f"  block {i}: {sum(norms) / max(len(norms), 1):6.3f}")


if __name__ == "__main__":
    main()
