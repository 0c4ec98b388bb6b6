"""Weight-shared transformer (one block applied several times) with activation checkpointing.

The shared block tends to get large gradients early in training, so the gradient of each
of its parameters is limited to a fixed norm while the backward pass runs.
"""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)
VOCAB, DIM, DEPTH, MAX_NORM = 32, 32, 6, 0.25


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, 2, d // 2).permute(2, 0, 3, 1, 4)
        a = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.norm2(x))


class SharedLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.block = Block()
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, ids):
        h = self.embed(ids)
        for _ in range(DEPTH):
            h = checkpoint(self.block, h, use_reentrant=True)
        return self.head(h)


def limit_norm(grad):
    norm = grad.norm()
    return grad * (MAX_NORM / norm) if norm > MAX_NORM else grad


def batches(n, gen):
    for _ in range(n):
        start = torch.randint(0, VOCAB, (16, 1), generator=gen)
        stride = torch.randint(1, 4, (16, 1), generator=gen)
        yield (start + stride * torch.arange(17)) % VOCAB


def main():
    torch.manual_seed(0)
    model = SharedLM()
    for p in model.block.parameters():
        p.register_hook(limit_norm)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    largest, loss = 0.0, None
    for seq in batches(25, torch.Generator().manual_seed(1)):
        logits = model(seq[:, :-1])
        loss = nn.functional.cross_entropy(logits.reshape(-1, VOCAB), seq[:, 1:].reshape(-1))
        opt.zero_grad()
        loss.backward()
        largest = max(largest, max(p.grad.norm().item() for p in model.block.parameters()))
        opt.step()
    print(f"loss after 25 steps: {loss.item():.3f}")
    print(f"largest parameter gradient in the shared block: {largest:.3f}")


if __name__ == "__main__":
    main()
