"""Domain-adversarial training (DANN): the encoder should help the label
classifier and confuse the domain classifier."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(19)


class DANN(nn.Module):
    def __init__(self, in_features=10, width=32, classes=3):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(in_features, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.label_head = nn.Linear(width, classes)
        self.domain_head = nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, x, strength=0.0):
        features = self.encoder(x)
        domain_features = features.view_as(features)
        if domain_features.requires_grad:
            domain_features.register_hook(lambda grad: -strength * grad)
        return self.label_head(features), self.domain_head(domain_features)


def make_domain(n, seed, offset):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 10, generator=generator)
    y = torch.stack([x[:, 0] + x[:, 1], x[:, 2] - x[:, 0], x[:, 3] - x[:, 1]], dim=1).argmax(dim=1)
    x[:, 6:] += offset
    return x, y


def schedule(progress, top=0.3):
    return top * (2.0 / (1.0 + math.exp(-6.0 * progress)) - 1.0)


def train(model, source, target, epochs=15, batch_size=64):
    source_x, source_y = source
    target_x, _ = target
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    steps = len(source_x) // batch_size
    for epoch in range(epochs):
        source_order = torch.randperm(len(source_x))
        target_order = torch.randperm(len(target_x))
        label_total, domain_total = 0.0, 0.0
        for step in range(steps):
            rows = slice(step * batch_size, (step + 1) * batch_size)
            xs, ys = source_x[source_order[rows]], source_y[source_order[rows]]
            xt = target_x[target_order[rows]]
            strength = schedule((epoch * steps + step + 1) / (epochs * steps))
            label_logits, domain_logits = model(torch.cat([xs, xt]), strength)
            domains = torch.cat([torch.zeros(len(xs)), torch.ones(len(xt))]).long()
            label_loss = F.cross_entropy(label_logits[:len(xs)], ys)
            domain_loss = F.cross_entropy(domain_logits, domains)
            optimizer.zero_grad()
            (label_loss + domain_loss).backward()
            optimizer.step()
            label_total += label_loss.item() / steps
            domain_total += domain_loss.item() / steps
        if epoch % 5 == 4:
            print(f"epoch {epoch + 1}: label loss {label_total:.3f}, domain loss {domain_total:.3f}")


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    labels, _ = model(x)
    model.train()
    return (labels.argmax(dim=1) == y).float().mean().item()


def main():
    source = make_domain(512, seed=1, offset=0.0)
    target = make_domain(512, seed=2, offset=0.8)
    model = DANN()
    train(model, source, target)
    print(f"source accuracy {accuracy(model, *source):.3f}")
    print(f"target accuracy {accuracy(model, *target):.3f}")


if __name__ == "__main__":
    main()
