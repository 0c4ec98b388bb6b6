"""Integrated gradients on the embedding layer of a text classifier."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class TextNet(nn.Module):
    def __init__(self, vocab=50, dim=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.mix = nn.Conv1d(dim, 24, 3, padding=1)
        self.out = nn.Linear(24, 2)

    def forward(self, ids):
        e = self.embed(ids).transpose(1, 2)
        return self.out(torch.tanh(self.mix(e)).mean(-1))


class IntegratedGradients:
    def __init__(self, model, layer, steps=64):
        self.model, self.steps = model, steps
        self.alpha = None
        self.point = None
        self.full = None
        self.handle = layer.register_forward_hook(self.interpolate)

    def interpolate(self, module, args, output):
        if self.alpha is None:
            return None
        # walk on the straight line from the zero baseline to the real embedding
        self.full = output.detach()
        self.point = self.alpha * output
        self.point.retain_grad()
        return self.point

    def score(self, ids, target, alpha=None):
        self.alpha = alpha
        value = self.model(ids)[0, target]
        self.alpha = None
        return value

    def attribute(self, ids, target):
        total = 0.0
        for k in range(self.steps):
            self.model.zero_grad()
            self.score(ids, target, (k + 0.5) / self.steps).backward()
            total = total + self.point.grad
        attributions = (self.full * total / self.steps).sum(-1)[0]
        delta = self.score(ids, target).item() - self.score(ids, target, 0.0).item()
        return attributions, delta

    def close(self):
        self.handle.remove()


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(8)
    ids = torch.randint(0, 50, (200, 10), generator=gen)
    y = ((ids < 10).sum(1) > 1).long()
    model = TextNet()
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(50):
        loss = F.cross_entropy(model(ids), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"loss {loss.item():.4f}")
    ig = IntegratedGradients(model, model.embed)
    for i in range(3):
        attr, delta = ig.attribute(ids[i:i + 1], int(y[i]))
        best = attr.abs().argmax().item()
        print(f"text {i}: strongest position {best} ({attr[best]:+.3f}), "
              f"sum {attr.sum():+.4f}, difference of scores {delta:+.4f}")
        print("  completeness holds:", abs(attr.sum().item() - delta) < 0.02 * abs(delta) + 1e-3)
    ig.close()


if __name__ == "__main__":
    main()
