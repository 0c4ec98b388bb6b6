"""Low-memory fine-tuning: each parameter is updated during backward, with gradient accumulation over micro-batches."""
import torch
from torch import nn

torch.manual_seed(7)
ACCUM = 4


class TinyLM(nn.Module):
    def __init__(self, vocab=40, dim=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.mix = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, vocab)

    def forward(self, ids):
        return self.out(torch.tanh(self.mix(self.emb(ids))))


def micro_batches(n):
    g = torch.Generator().manual_seed(70)
    for _ in range(n):
        ids = torch.randint(0, 40, (4, 9), generator=g)
        yield ids[:, :-1], ids[:, 1:]


model = TinyLM()
reference = TinyLM()
reference.load_state_dict(model.state_dict())

optimizers = {p: torch.optim.SGD([p], lr=0.5) for p in model.parameters()}
updates = {p: 0 for p in model.parameters()}
arrived = {p: 0 for p in model.parameters()}


def update_in_backward(p):
    # the gradient is complete after ACCUM micro-batches: step and free it at once
    arrived[p] += 1
    if arrived[p] % ACCUM:
        return
    optimizers[p].step()
    optimizers[p].zero_grad()
    updates[p] += 1


for p in model.parameters():
    p.register_post_accumulate_grad_hook(update_in_backward)

ref_opt = torch.optim.SGD(reference.parameters(), lr=0.5)
for i, (x, y) in enumerate(micro_batches(16)):
    loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()) / ACCUM
    loss.backward()
    # the classical loop, for comparison
    ref_loss = nn.functional.cross_entropy(reference(x).flatten(0, 1), y.flatten()) / ACCUM
    ref_loss.backward()
    if (i + 1) % ACCUM == 0:
        ref_opt.step()
        ref_opt.zero_grad()

print("micro-batches 16, accumulation", ACCUM)
print("updates per parameter:", sorted(set(updates.values())))
gap = max((a - b).abs().max().item() for a, b in zip(model.parameters(), reference.parameters()))
print(f"largest difference to the classical loop {gap:.6f}")
print("same weights as the classical loop:", gap < 1e-6)
