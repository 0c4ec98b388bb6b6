"""Gradient accumulation should give the same update as the large batch."""
import torch
from torch import nn

torch.manual_seed(0)
CLIP = 0.5


def clip_by_norm(grad):
    n = grad.norm()
    return grad * (CLIP / n) if n > CLIP else grad


def build():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1))
    for p in model.parameters():
        p.register_hook(clip_by_norm)
    return model


def run(accum, x, y):
    model = build()
    model.zero_grad()
    losses = []
    for xb, yb in zip(x.chunk(accum), y.chunk(accum)):
        loss = (model(xb) - yb).pow(2).mean() / accum
        loss.backward()
        losses.append(loss.item())
    grads = {n: p.grad.clone() for n, p in model.named_parameters()}
    return sum(losses), grads


x = torch.randn(64, 6)
y = 2 * x[:, :1] - x[:, 1:2]
y[:4] += 40.0
loss1, g1 = run(1, x, y)
loss8, g8 = run(8, x, y)
print(f"loss   one batch {loss1:.5f}   8 micro-batches {loss8:.5f}")
for n in g1:
    cos = nn.functional.cosine_similarity(g1[n].flatten(), g8[n].flatten(), dim=0)
    print(f"{n:9s} norm one batch {g1[n].norm():.4f}   8 micro-batches {g8[n].norm():.4f}   cosine {cos:.3f}")
