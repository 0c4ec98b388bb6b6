"""Domain-adversarial training with the gradient reversal done by a tensor hook."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class DANN(nn.Module):
    def __init__(self, dim=10, hidden=24):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.label_head = nn.Linear(hidden, 2)
        self.domain_head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2))
        self.lam = 0.0

    def forward(self, x):
        z = self.encoder(x)
        if z.requires_grad:
            # the encoder should confuse the domain head: turn the gradient around
            z.register_hook(lambda g: -self.lam * g)
        return self.label_head(z), self.domain_head(z)


def make_domain(n, shift, gen):
    x = torch.randn(n, 10, generator=gen)
    y = (x[:, 0] - x[:, 1] > 0).long()
    x[:, 5:] += shift
    return x, y


def accuracy(logits, target):
    return (logits.argmax(-1) == target).float().mean().item()


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    xs, ys = make_domain(256, 0.0, gen)
    xt, yt = make_domain(256, 1.5, gen)
    x = torch.cat([xs, xt])
    dom = torch.cat([torch.zeros(256), torch.ones(256)]).long()
    model = DANN()
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    epochs = 100
    for epoch in range(epochs):
        model.lam = 0.3 * min(1.0, (epoch + 1) / 20)  # slow start of the adversary
        label_logits, domain_logits = model(x)
        label_loss = F.cross_entropy(label_logits[:256], ys)
        domain_loss = F.cross_entropy(domain_logits, dom)
        opt.zero_grad()
        (label_loss + domain_loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if epoch % 20 == 19:
            print(f"epoch {epoch + 1:3d} label {label_loss.item():.3f} domain {domain_loss.item():.3f} lam {model.lam:.2f}")
    with torch.no_grad():
        src = accuracy(model(xs)[0], ys)
        tgt = accuracy(model(xt)[0], yt)
    print(f"source accuracy {src:.3f} target accuracy {tgt:.3f}")
    print("label task solved on the source:", src > 0.9)


if __name__ == "__main__":
    main()
