"""Tiny language model with shared input and output embedding; vocabulary gradients are damped by one half."""
import torch
from torch import nn

torch.manual_seed(6)
VOCAB, DIM, DAMP = 40, 24, 0.5


class TinyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.rnn = nn.GRU(DIM, DIM, batch_first=True)
        self.norm = nn.LayerNorm(DIM)
        self.decoder = nn.Linear(DIM, VOCAB, bias=False)
        self.decoder.weight = self.embed.weight

    def forward(self, ids):
        h, _ = self.rnn(self.embed(ids))
        return self.decoder(self.norm(h))


def damp_vocabulary(model, factor):
    """Frequent tokens dominate, so the two vocabulary layers learn more slowly than the rest."""
    for module in model.modules():
        if isinstance(module, (nn.Embedding, nn.Linear)):
            module.weight.register_hook(lambda g: g * factor)


def lm_loss(model, ids):
    logits = model(ids[:, :-1])
    return nn.functional.cross_entropy(logits.reshape(-1, VOCAB), ids[:, 1:].reshape(-1))


def vocab_grad_norm(model, ids):
    model.zero_grad()
    lm_loss(model, ids).backward()
    return model.embed.weight.grad.norm().item()


def sample_batch(n=16, length=14):
    start = torch.randint(0, VOCAB, (n, 1))
    stride = torch.randint(1, 3, (n, 1))
    return (start + stride * torch.arange(length)) % VOCAB


model = TinyLM()
probe = sample_batch()
plain = vocab_grad_norm(model, probe)
damp_vocabulary(model, DAMP)
damped = vocab_grad_norm(model, probe)
print(f"vocabulary gradient: plain {plain:.4f}, damped {damped:.4f}, factor {damped / plain:.2f}")

optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(60):
    ids = sample_batch()
    loss = lm_loss(model, ids)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if (step + 1) % 20 == 0:
        print(f"step {step + 1}: loss {loss.item():.3f}")

with torch.no_grad():
    print(f"held-out loss {lm_loss(model, sample_batch(64)).item():.3f}")
