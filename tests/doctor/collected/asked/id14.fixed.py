import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)
torch.manual_seed(6)


class FeedForward(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Checkpointed(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        if self.training:
            return checkpoint(self.layer, x, use_reentrant=True)
        return self.layer(x)


class SequenceModel(nn.Module):
    def __init__(self, vocab=60, dim=32, depth=3):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList([Checkpointed(FeedForward(dim)) for _ in range(depth)])
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class ChannelStatistics:
    """Mean square of each channel over all tokens of the training run."""

    def __init__(self, dim):
        self.total = torch.zeros(dim)
        self.tokens = 0

    def __call__(self, module, args, output):
        flat = output.detach().reshape(-1, output.shape[-1])
        self.total += flat.pow(2).sum(dim=0)
        self.tokens += flat.shape[0]


def main():
    model = SequenceModel()
    statistics, handles = {}, []
    for index, wrapped in enumerate(model.layers):
        statistics[index] = ChannelStatistics(32)
        handles.append(wrapped.register_forward_hook(statistics[index]))

    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    fed = 0
    for step in range(12):
        tokens = torch.randint(0, 60, (8, 16))
        targets = (tokens + 1) % 60
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        fed += tokens.numel()
    for handle in handles:
        handle.remove()

    print(f"loss {loss.item():.3f} after {fed} tokens")
    for index, stats in statistics.items():
        rms = (stats.total / stats.tokens).sqrt().mean().item()
        print(f"layer {index}: rms {rms:.3f} from {stats.tokens} tokens")


if __name__ == "__main__":
    main()
