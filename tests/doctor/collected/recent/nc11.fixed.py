"""Continue the training of a pruned network from a checkpoint file.

Weights of small magnitude were set to zero after the first phase; in the second phase the
same weights have to stay at zero while the rest is tuned with a smaller learning rate.
"""
import io

import torch
from torch import nn

torch.set_num_threads(1)


def build():
    return nn.Sequential(nn.Linear(14, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


def spirals(n=600):
    g = torch.Generator().manual_seed(12)
    y = torch.randint(0, 2, (n,), generator=g)
    r = torch.rand(n, generator=g) * 3 + 0.3
    a = r * 1.8 + y * 3.1416
    xy = torch.stack([r * a.cos(), r * a.sin()], 1) + 0.08 * torch.randn(n, 2, generator=g)
    f = torch.linspace(0.5, 2.0, 3)
    return torch.cat([xy, (xy[:, :, None] * f).flatten(1).sin(), (xy[:, :, None] * f).flatten(1).cos()], 1), y


def fit(model, x, y, lr, steps):
    opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for _ in range(steps):
        idx = torch.randint(0, len(x), (64,))
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


@torch.no_grad()
def prune(model, fraction):
    masks = {}
    for name, p in model.named_parameters():
        if p.dim() == 2:
            k = int(fraction * p.numel())
            limit = p.abs().flatten().kthvalue(k).values
            masks[name] = (p.abs() > limit).float()
            p.mul_(masks[name])
    return masks


def keep_zeros(model, masks):
    for name, p in model.named_parameters():
        if name in masks:
            p.register_hook(lambda grad, m=masks[name]: grad * m)


def sparsity(model):
    w = torch.cat([p.detach().flatten() for p in model.parameters() if p.dim() == 2])
    return (w == 0).float().mean().item()


def main():
    torch.manual_seed(0)
    x, y = spirals()
    dense = build()
    fit(dense, x, y, lr=0.05, steps=250)
    masks = prune(dense, 0.7)
    file = io.BytesIO()
    torch.save({"model": dense.state_dict(), "masks": masks}, file)
    file.seek(0)

    saved = torch.load(file, weights_only=True)
    model = build()
    keep_zeros(model, saved["masks"])
    model.load_state_dict(saved["model"])
    print(f"sparsity of the loaded network  {sparsity(model):.3f}")
    loss = fit(model, x, y, lr=0.01, steps=150)
    acc = (model(x).argmax(1) == y).float().mean().item()
    print(f"after tuning: loss {loss:.3f} accuracy {acc:.3f}")
    print(f"sparsity of the tuned network   {sparsity(model):.3f}")


if __name__ == "__main__":
    main()
