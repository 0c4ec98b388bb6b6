"""Train a word-level language model while the tensors kept for the backward
pass are stored in bfloat16 to halve activation memory."""
import contextlib

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB, USED_WORDS, DIM, SEQ = 1088, 1000, 32, 12


class CompressedActivations:
    """Context in which saved activations are held in half precision."""

    def __init__(self, dtype=torch.bfloat16):
        self.dtype = dtype
        self.full_bytes = 0
        self.kept_bytes = 0

    def pack(self, tensor):
        small = tensor.to(self.dtype) if tensor.is_floating_point() else tensor
        self.full_bytes += tensor.numel() * tensor.element_size()
        self.kept_bytes += small.numel() * small.element_size()
        return tensor.dtype, small

    def unpack(self, packed):
        dtype, small = packed
        return small.to(dtype)

    @contextlib.contextmanager
    def active(self):
        with torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack):
            yield self


class WordLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.mix = nn.Linear(2 * DIM, 4 * DIM)
        self.out = nn.Linear(4 * DIM, DIM)
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, ids):
        x = self.embed(ids)
        previous = F.pad(x, (0, 0, 1, 0))[:, :-1]
        h = self.out(F.gelu(self.mix(torch.cat([x, previous], dim=-1))))
        return self.head(x + h)


def text_batch(gen):
    start = torch.randint(0, USED_WORDS, (16, 1), generator=gen)
    return (start + 3 * torch.arange(SEQ + 1)) % USED_WORDS


gen = torch.Generator().manual_seed(0)
model = WordLM()
optim = torch.optim.SGD(model.parameters(), lr=0.5)
store = CompressedActivations()

initial = model.embed.weight.detach().clone()
seen = torch.zeros(VOCAB, dtype=torch.bool)
losses = []
for step in range(60):
    ids = text_batch(gen)
    seen[ids[:, :-1].flatten()] = True
    with store.active():
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    optim.zero_grad()
    loss.backward()
    optim.step()
    losses.append(loss.item())

updated = (model.embed.weight.detach() - initial).abs().amax(dim=1) > 0
print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
print(f"saved tensors: {store.full_bytes / 1e6:.1f} MB kept as {store.kept_bytes / 1e6:.1f} MB")
print(f"words read by the model: {seen.sum().item()}, word vectors updated: {updated.sum().item()}")
print(f"words read whose vector never changed: {(seen & ~updated).sum().item()}")
