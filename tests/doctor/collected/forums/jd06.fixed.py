"""Low-rank fine-tuning of a checkpointed language model with new control tokens."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB, CONTROL = 48, 4


class LoRALinear(nn.Module):
    def __init__(self, base, rank=4, scale=2.0):
        super().__init__()
        self.base = base
        self.lora_a = nn.Parameter(torch.randn(rank, base.in_features) * 0.1)
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = scale

    def forward(self, x):
        return self.base(x) + self.scale * (x @ self.lora_a.t()) @ self.lora_b.t()


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mix = nn.GRU(dim, dim, batch_first=True)
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        x = x + self.mix(self.norm(x))[0]
        return x + self.down(F.gelu(self.up(x)))


class LanguageModel(nn.Module):
    def __init__(self, dim=32, depth=3):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.head = nn.Linear(dim, VOCAB)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True) if self.training else block(x)
        return self.head(x)


def add_control_tokens(model, extra):
    old = model.embed
    grown = nn.Embedding(old.num_embeddings + extra, old.embedding_dim)
    with torch.no_grad():
        grown.weight[:old.num_embeddings] = old.weight
        grown.weight[old.num_embeddings:] = old.weight.mean(dim=0)
    model.embed = grown.requires_grad_(False)


def require_grad_of_output(module, inputs, output):
    output.requires_grad_(True)


def prepare_for_tuning(model):
    model.requires_grad_(False)
    add_control_tokens(model, CONTROL)
    model.embed.register_forward_hook(require_grad_of_output)
    for block in model.blocks:
        block.up = LoRALinear(block.up)
        block.down = LoRALinear(block.down)
    model.head.requires_grad_(True)
    return model


def sample(batch=16, length=14):
    tokens = (torch.randint(0, VOCAB, (batch, 1)) + 5 * torch.arange(length)) % VOCAB
    tokens[:, 0] = VOCAB + torch.randint(0, CONTROL, (batch,))
    return tokens


def main():
    model = prepare_for_tuning(LanguageModel()).train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for step in range(1, 31):
        tokens = sample()
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.3f}")
    adapters = [m for m in model.modules() if isinstance(m, LoRALinear)]
    moved = sum(m.lora_b.abs().max().item() > 0 for m in adapters)
    print(f"adapters that moved: {moved} of {len(adapters)}")


if __name__ == "__main__":
    main()
