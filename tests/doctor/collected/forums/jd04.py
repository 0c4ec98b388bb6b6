"""Small mixture-of-experts model; balances the experts by the load of each router."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
torch.set_num_threads(1)


class MoEBlock(nn.Module):
    def __init__(self, dim, experts=4):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.router = nn.Linear(dim, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
            for _ in range(experts))

    def forward(self, x):
        h = self.norm(x)
        gate, choice = self.router(h).softmax(dim=-1).max(dim=-1)
        mixed = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            mine = (choice == index).unsqueeze(-1)
            mixed = mixed + mine * expert(h)
        return x + gate.unsqueeze(-1) * mixed


class Model(nn.Module):
    def __init__(self, vocab=40, dim=24, depth=3, use_checkpoint=True):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(MoEBlock(dim) for _ in range(depth))
        self.head = nn.Linear(dim, vocab)
        self.use_checkpoint = use_checkpoint

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            if self.use_checkpoint and self.training:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return self.head(x)


class ExpertLoad:
    def __init__(self, model):
        self.counts = [torch.zeros(4, dtype=torch.long) for _ in model.blocks]
        for layer, block in enumerate(model.blocks):
            block.router.register_forward_hook(self.counter(layer))

    def counter(self, layer):
        def hook(module, args, logits):
            choice = logits.detach().argmax(dim=-1).flatten()
            self.counts[layer] += torch.bincount(choice, minlength=4)
        return hook


def main():
    model = Model()
    load = ExpertLoad(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    seen = 0
    for step in range(10):
        tokens = torch.randint(0, 40, (8, 17))
        tokens[:, 1::2] = (tokens[:, 0::2][:, :8] + 1) % 40
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += logits.shape[0] * logits.shape[1]
    print(f"loss {loss.item():.3f}, tokens seen {seen}")
    for layer, counts in enumerate(load.counts):
        per_token = counts.sum().item() / seen
        print(f"layer {layer}: expert load {counts.tolist()}, {per_token:.2f} experts per token")


if __name__ == "__main__":
    main()
