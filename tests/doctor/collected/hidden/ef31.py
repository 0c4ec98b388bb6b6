"""Remove a linear concept direction from the encoder output and test what the classifier still knows."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, dim), nn.ReLU(), nn.Linear(dim, dim))

    def forward(self, x, scale=1.0):
        return self.body(x * scale)


class Pipeline(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.heads = nn.ModuleDict({"shape": nn.Linear(24, 2), "color": nn.Linear(24, 2)})

    def forward(self, x):
        z = self.encoder.forward(x, scale=0.5)
        return {name: head(torch.relu(z)) for name, head in self.heads.items()}


class Eraser:
    """Projects the representation onto the complement of the given directions."""

    def __init__(self, module, directions):
        q, _ = torch.linalg.qr(directions.T)
        self.basis = q
        self.handle = module.register_forward_hook(self.project)

    def project(self, module, args, z):
        return z - (z @ self.basis) @ self.basis.T

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.handle.remove()


def accuracy(model, x, targets):
    with torch.no_grad():
        out = model(x)
    return {k: (out[k].argmax(-1) == t).float().mean().item() for k, t in targets.items()}


def main():
    torch.manual_seed(0)
    x = torch.randn(500, 10)
    targets = {"shape": (x[:, 0] * x[:, 1] > 0).long(), "color": (x[:, 2] > 0).long()}
    model = Pipeline()
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(150):
        out = model(x)
        loss = sum(F.cross_entropy(out[k], targets[k]) for k in targets)
        opt.zero_grad()
        loss.backward()
        opt.step()
    before = accuracy(model, x, targets)
    print("before:", {k: round(v, 3) for k, v in before.items()})
    z = model.encoder(x, scale=0.5).detach()
    mean_gap = z[targets["color"] == 1].mean(0) - z[targets["color"] == 0].mean(0)
    w = model.heads["color"].weight.detach()
    directions = torch.stack([mean_gap, w[1] - w[0]])
    with Eraser(model.encoder, directions):
        after = accuracy(model, x, targets)
    print("after :", {k: round(v, 3) for k, v in after.items()})
    print(f"color accuracy lost by the erasure: {before['color'] - after['color']:.3f}")


if __name__ == "__main__":
    main()
