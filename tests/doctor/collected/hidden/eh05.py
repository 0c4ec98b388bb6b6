"""Domain-adversarial training; the reversal hook sits on a view that only the domain head uses."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class DANN(nn.Module):
    def __init__(self, dim=10, hidden=24):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.label_head = nn.Linear(hidden, 2)
        self.domain_head = nn.Linear(hidden, 2)
        self.lam = 0.2

    def reverse(self, grad):
        return -self.lam * grad

    def forward(self, x):
        z = self.encoder(x)
        z_dom = z.view_as(z)
        if z_dom.requires_grad:  # not in evaluation
            z_dom.register_hook(self.reverse)
        return self.label_head(z), self.domain_head(z_dom)


def encoder_grad(model, loss):
    model.zero_grad()
    loss.backward(retain_graph=True)
    return torch.cat([p.grad.flatten() for p in model.encoder.parameters()])


def main():
    torch.manual_seed(0)
    xs, xt = torch.randn(200, 10), torch.randn(200, 10)
    xt[:, 5:] += 1.0
    ys = (xs[:, 0] > xs[:, 1]).long()
    x = torch.cat([xs, xt])
    dom = torch.cat([torch.zeros(200), torch.ones(200)]).long()
    model = DANN()
    # check the sign once: with lam = -1 the hook is the identity
    logits = model(x)[1]
    model.lam = -1.0
    plain = encoder_grad(model, F.cross_entropy(logits, dom))
    model.lam = 0.2
    turned = encoder_grad(model, F.cross_entropy(logits, dom))
    print("reversed and scaled:", torch.allclose(turned, -0.2 * plain, atol=1e-7))
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(60):
        label_logits, domain_logits = model(x)
        label_loss = F.cross_entropy(label_logits[:200], ys)
        domain_loss = F.cross_entropy(domain_logits, dom)
        opt.zero_grad()
        (label_loss + domain_loss).backward()
        opt.step()
        if epoch % 20 == 19:
            print(f"epoch {epoch + 1} label {label_loss.item():.3f} domain {domain_loss.item():.3f}")
    with torch.no_grad():
        acc = (model(xs)[0].argmax(-1) == ys).float().mean().item()
    print(f"source accuracy {acc:.3f}")


if __name__ == "__main__":
    main()
