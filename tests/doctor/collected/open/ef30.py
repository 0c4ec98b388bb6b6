"""Gradient-times-input attributions at the embedding of a linear bag-of-words sentiment model."""
import math
import torch
import torch.nn as nn
import torch.nn.functional as F


class BagModel(nn.Module):
    def __init__(self, vocab=60, dim=16):
        super().__init__()
        self.dim = dim
        self.tok = nn.Embedding(vocab, dim)
        self.out = nn.Linear(dim, 1, bias=False)
        nn.init.normal_(self.tok.weight, std=0.1)

    def forward(self, ids):
        e = self.tok(ids)
        e *= math.sqrt(self.dim)  # usual scaling of embeddings
        return self.out(e.mean(1)).squeeze(-1)


class Attribution:
    """input x gradient for the vectors that the model works with."""

    def __init__(self, layer):
        self.vectors = None
        self.gradient = None
        self.handle = layer.register_forward_hook(self.forward_hook)

    def forward_hook(self, module, args, output):
        self.vectors = output
        output.register_hook(self.backward_hook)

    def backward_hook(self, grad):
        self.gradient = grad

    def scores(self):
        return (self.vectors * self.gradient).sum(-1).detach()


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(3)
    ids = torch.randint(0, 60, (300, 8), generator=gen)
    valence = torch.randn(60, generator=gen)
    y = (valence[ids].mean(1) > 0).float()
    model = BagModel()
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        loss = F.binary_cross_entropy_with_logits(model(ids), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"loss {loss.item():.4f}")
    attr = Attribution(model.tok)
    worst = 0.0
    for i in range(4):
        logit = model(ids[i:i + 1])
        model.zero_grad()
        logit.sum().backward()
        s = attr.scores()[0]
        top = s.abs().argmax().item()
        print(f"text {i}: logit {logit.item():+.3f} sum of attributions {s.sum():+.3f} "
              f"strongest word {ids[i, top].item()} ({s[top]:+.3f})")
        worst = max(worst, abs(s.sum().item() - logit.item()))
    attr.handle.remove()
    # the model is linear, the attributions have to add up to the logit
    print("attributions add up:", worst < 1e-3)


if __name__ == "__main__":
    main()
