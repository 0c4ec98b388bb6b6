"""Domain-adversarial training: the domain head's gradient is reversed at the features."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(13)
torch.set_num_threads(1)


class DANN(nn.Module):
    def __init__(self, strength):
        super().__init__()
        self.strength = strength
        self.encoder = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.label_head = nn.Linear(16, 2)
        self.domain_head = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))

    def reverse(self, grad):
        return -self.strength * grad

    def forward(self, x):
        features = self.encoder(x)
        labels = self.label_head(features)
        if features.requires_grad:
            features.register_hook(self.reverse)
        domains = self.domain_head(features)
        return labels, domains


def make_domain(n, shift):
    x = torch.randn(n, 10)
    y = (x[:, 0] + x[:, 1] * x[:, 2] > 0).long()
    x[:, 5:] += shift
    return x, y


def train(model, source, target, epochs=25):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    xs, ys = source
    xt, _ = target
    for epoch in range(epochs):
        label_total = 0.0
        for batch in torch.randperm(len(xs)).split(64):
            optimizer.zero_grad()
            x = torch.cat([xs[batch], xt[batch]])
            domain = torch.cat([torch.zeros(len(batch)), torch.ones(len(batch))]).long()
            labels, domains = model(x)
            label_loss = F.cross_entropy(labels[: len(batch)], ys[batch])
            loss = label_loss + F.cross_entropy(domains, domain)
            loss.backward()
            optimizer.step()
            label_total += label_loss.item() * len(batch)
        if epoch % 8 == 0:
            print(f"epoch {epoch}: label loss {label_total / len(xs):.3f}")


@torch.no_grad()
def accuracy(model, x, y):
    return (model(x)[0].argmax(dim=1) == y).float().mean().item()


def main():
    source = make_domain(512, 0.0)
    target = make_domain(512, 0.8)
    model = DANN(strength=0.1)
    train(model, source, target)
    print(f"target accuracy {accuracy(model, *target):.3f}")
    print(f"source accuracy {accuracy(model, *source):.3f}")


if __name__ == "__main__":
    main()
