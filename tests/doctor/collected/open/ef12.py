"""Train a small autoencoder-like classifier and keep the code of the first batch for a plot."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class CodeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 8), nn.Tanh())
        self.decoder = nn.Linear(8, 20)
        self.classifier = nn.Linear(8, 4)

    def forward(self, x):
        code = self.encoder(x)
        return self.decoder(code), self.classifier(code)


def make_data(n, gen):
    centers = torch.randn(4, 20, generator=gen) * 2
    y = torch.randint(0, 4, (n,), generator=gen)
    return centers[y] + torch.randn(n, 20, generator=gen), y


def scatter_summary(codes, labels):
    """What we would draw: one centroid per class and the spread around it."""
    for c in range(4):
        part = codes[labels == c]
        print(f"  class {c}: n={len(part)} centroid norm {part.mean(0).norm():.3f} spread {part.std(0).mean():.3f}")


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(2)
    x, y = make_data(640, gen)
    model = CodeNet()
    keep = {}
    # remember the codes of the very first batch, later batches leave the entry alone
    handle = model.encoder.register_forward_hook(
        lambda mod, args, out: keep.setdefault("first", out.detach()))
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(6):
        hits = 0
        for k in range(0, len(x), 64):
            xb, yb = x[k:k + 64], y[k:k + 64]
            recon, logits = model(xb)
            loss = F.mse_loss(recon, xb) + F.cross_entropy(logits, yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            hits += (logits.argmax(-1) == yb).sum().item()
        print(f"epoch {epoch}: loss {loss.item():.3f} accuracy {hits / len(x):.2f}")
    handle.remove()
    print("codes of the first batch:")
    scatter_summary(keep["first"], y[:64])
    print("task learned:", hits / len(x) > 0.9)


if __name__ == "__main__":
    main()
