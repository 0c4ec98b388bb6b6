"""Domain-adversarial features: the gradient of the domain loss is turned around at the encoder."""
import torch
from torch import nn

torch.set_num_threads(1)
LAMBDA = 0.5


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 12))

    def forward(self, x):
        return self.net(x)


def data():
    g = torch.Generator().manual_seed(3)
    x = torch.randn(120, 6, generator=g)
    y = (x[:, 0] + x[:, 1] > 0).long()
    d = torch.arange(120) % 2
    x[:, 5] += 2.0 * d                # the domains differ in the last input
    return x, y, d


def domain_loss_with_reversal(features, domain_head, d):
    # the hook lives as long as the block, so that the task loss is not touched
    features.register_hook(lambda g: -LAMBDA * g)
    return nn.functional.cross_entropy(domain_head(features), d)


def encoder_grad(loss, encoder):
    grads = torch.autograd.grad(loss, list(encoder.parameters()), retain_graph=True)
    return torch.cat([g.flatten() for g in grads])


def main():
    torch.manual_seed(0)
    encoder, task_head, domain_head = Encoder(), nn.Linear(12, 2), nn.Linear(12, 2)
    params = [*encoder.parameters(), *task_head.parameters(), *domain_head.parameters()]
    opt = torch.optim.Adam(params, lr=0.01)
    x, y, d = data()
    for step in range(40):
        features = encoder(x)
        task = nn.functional.cross_entropy(task_head(features), y)
        # a separate view for the domain branch
        dom = domain_loss_with_reversal(features.clone(), domain_head, d)
        if step == 0:
            plain = nn.functional.cross_entropy(domain_head(features), d)
            a, b = encoder_grad(dom, encoder), encoder_grad(plain, encoder)
            cos = torch.nn.functional.cosine_similarity(a, b, dim=0).item()
            print(f"domain gradient at the encoder against the plain one: cosine {cos:+.2f}")
        opt.zero_grad()
        (task + dom).backward()
        opt.step()
    with torch.no_grad():
        f = encoder(x)
        acc_y = (task_head(f).argmax(dim=1) == y).float().mean().item()
        acc_d = (domain_head(f).argmax(dim=1) == d).float().mean().item()
    print(f"task accuracy {acc_y:.2f}")
    print("domain can be read off:", "yes" if acc_d > 0.8 else "hardly")


if __name__ == "__main__":
    main()
