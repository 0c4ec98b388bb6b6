"""A small character GPT with tied embeddings, learning-rate warm-up, cosine decay to zero and weight decay of 0.1."""

import hashlib
import math

import torch
from torch import nn
from torch.nn import functional as F


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


torch.set_num_threads(1)
torch.manual_seed(0)
STEPS, CONTEXT, WIDTH = 700, 32, 48
rng = torch.Generator().manual_seed(3)
words = [
    "".join(chr(97 + int(c)) for c in torch.randint(0, 26, (int(n),), generator=rng))
    for n in torch.randint(2, 6, (12,), generator=rng)
]
text = " ".join(words[int(i)] for i in torch.randint(0, 12, (6000,), generator=rng))
chars = sorted(set(text))
data = torch.tensor([chars.index(c) for c in text])


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, 4, c // 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(len(chars), WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.ln = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, len(chars), bias=False)
        nn.init.normal_(self.tok.weight, std=0.05)
        self.head.weight = self.tok.weight

    def forward(self, idx, targets):
        x = self.tok(idx) + self.pos(torch.arange(idx.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.ln(x))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def lr_at(step):
    if step < 100:
        return (step + 1) / 100
    return 0.5 * (1 + math.cos(math.pi * (step - 100) / (STEPS - 100)))


model = GPT()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lr_at)
losses = []
for step in range(STEPS):
    start = torch.randint(0, len(data) - CONTEXT - 1, (12,))
    batch = torch.stack([data[s : s + CONTEXT + 1] for s in start])
    _, loss = model(batch[:, :-1], batch[:, 1:])
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    losses.append(loss.item())
print(f"loss {losses[0]:.3f} -> {sum(losses[-20:]) / 20:.3f}")
assert sum(losses[-20:]) / 20 < 0.6 * losses[0]
print("digest", digest(model))
