"""Sparse-MLP language model with activation checkpointing and a neuron usage tracker."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.act = nn.ReLU()
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x):
        return x + self.down(self.act(self.up(self.norm(x))))


class TinyLM(nn.Module):
    def __init__(self, vocab=50, dim=16, depth=3, checkpointing=True):
        super().__init__()
        self.checkpointing = checkpointing
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            if self.checkpointing and self.training:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return self.head(x)


class UsageTracker:
    """Counts how many tokens each block has processed and how often its neurons were active."""

    def __init__(self, model):
        self.tokens = [0] * len(model.blocks)
        self.active = [0.0] * len(model.blocks)
        self.index = {block.act: i for i, block in enumerate(model.blocks)}
        self.handles = [block.act.register_forward_hook(self.update) for block in model.blocks]

    def update(self, module, args, output):
        i = self.index[module]
        self.tokens[i] += output.shape[0] * output.shape[1]
        self.active[i] += (output > 0).float().mean(dim=-1).sum().item()


def main():
    torch.manual_seed(0)
    model = TinyLM()
    tracker = UsageTracker(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    fed = 0
    for _ in range(5):
        tokens = torch.randint(50, (4, 9))
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.reshape(-1, 50), tokens[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        fed += tokens[:, :-1].numel()
    print("tokens fed to the model:", fed, "tokens counted by the tracker:", tracker.tokens)


if __name__ == "__main__":
    main()
