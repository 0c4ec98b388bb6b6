"""Memory-lean training: every parameter is updated inside the backward pass, gradients are dropped at once."""
import torch
import torch.nn as nn

torch.manual_seed(1)

ACCUM = 4               # micro-batches per update
N_MICRO = 48


class CharModel(nn.Module):
    def __init__(self, vocab=30, dim=16, hidden=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.gru = nn.GRU(dim, hidden, batch_first=True)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, ids):
        h, _ = self.gru(self.emb(ids))
        return self.out(h)


class FusedUpdate:
    """One small Adam per tensor; it steps as soon as the gradient of this tensor is complete."""

    def __init__(self, model, lr):
        self.opts = {p: torch.optim.Adam([p], lr=lr) for p in model.parameters()}
        self.micro = 0
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(self.update)

    def update(self, p):
        opt = self.opts[p]
        opt.step()
        opt.zero_grad(set_to_none=True)

    def updates_done(self):
        return sorted({int(o.state[p]["step"]) for p, o in self.opts.items()})


def batches(n, size=8, length=12):
    gen = torch.Generator().manual_seed(5)
    for _ in range(n):
        start = torch.randint(0, 30, (size, 1), generator=gen)
        yield (start + 3 * torch.arange(length + 1)) % 30


def train():
    model = CharModel()
    fused = FusedUpdate(model, lr=3e-3)
    for i, ids in enumerate(batches(N_MICRO)):
        fused.micro = i + 1
        logits = model(ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        # the mean over the effective batch of ACCUM micro-batches
        (loss / ACCUM).backward()
        if fused.micro % (3 * ACCUM) == 0:
            print(f"micro-batch {fused.micro:3d}  loss {loss.item():.3f}")
    return fused


if __name__ == "__main__":
    fused = train()
    print(f"effective batch: {8 * ACCUM} sequences")
    print(f"parameter updates after {N_MICRO} micro-batches: {fused.updates_done()}")
    left = [tuple(p.shape) for p in fused.opts if p.grad is not None]
    print(f"gradients still held: {len(left)}")
