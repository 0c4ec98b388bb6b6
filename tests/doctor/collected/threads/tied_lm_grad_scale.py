"""Language model with tied embeddings; gradients of all weight matrices are halved."""
import torch
from torch import nn

SCALE = 0.5


class TinyLM(nn.Module):
    def __init__(self, vocab=30, d=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.rnn = nn.GRU(d, d, batch_first=True)
        self.proj = nn.Linear(d, d)
        self.decoder = nn.Linear(d, vocab, bias=False)
        self.decoder.weight = self.emb.weight

    def forward(self, ids):
        h, _ = self.rnn(self.emb(ids))
        return self.decoder(torch.tanh(self.proj(h)))


def scale_hook(grad):
    return grad * SCALE


def add_scaling(model):
    n = 0
    for module in model.modules():
        for name, p in module.named_parameters(recurse=False):
            if p.dim() >= 2:
                p.register_hook(scale_hook)
                n += 1
    return n


def grads(with_hooks):
    torch.manual_seed(0)
    model = TinyLM()
    if with_hooks:
        print("hooks registered:", add_scaling(model), "- parameters:", len(list(model.parameters())))
    ids = torch.randint(0, 30, (8, 12))
    out = model(ids[:, :-1])
    nn.functional.cross_entropy(out.flatten(0, 1), ids[:, 1:].flatten()).backward()
    return {n: p.grad.clone() for n, p in model.named_parameters()}


plain, scaled = grads(False), grads(True)
for n in plain:
    print(f"{n:18s} dim {plain[n].dim()}  gradient ratio {(scaled[n].norm() / plain[n].norm()).item():.3f}")
