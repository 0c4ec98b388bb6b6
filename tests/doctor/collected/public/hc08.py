"""Domain-adversarial training: one feature extractor, a label head and a reversed domain head."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(8)

N_FEATURES = 10
STEPS = 150
BATCH = 64


def grl_hook(coeff):
    def reverse(grad):
        return -coeff * grad
    return reverse


class FeatureExtractor(nn.Module):
    def __init__(self, n_in, n_out=16):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_in, 32), nn.ReLU(), nn.Linear(32, n_out), nn.ReLU())

    def forward(self, x):
        return self.body(x)


class DomainDiscriminator(nn.Module):
    """Predicts the domain; its gradient reaches the extractor with the sign turned round."""

    def __init__(self, n_in=16, hidden=16, max_iter=STEPS):
        super().__init__()
        self.fc1 = nn.Linear(n_in, hidden)
        self.fc2 = nn.Linear(hidden, 1)
        self.max_iter = max_iter
        self.iteration = 0

    def coefficient(self):
        progress = self.iteration / self.max_iter
        return float(2.0 / (1.0 + torch.exp(torch.tensor(-10.0 * progress))) - 1.0)

    def forward(self, features):
        self.iteration += 1
        features.register_hook(grl_hook(self.coefficient()))
        h = F.relu(self.fc1(features))
        return self.fc2(h).squeeze(1)


def make_domains(n, gen):
    direction = torch.ones(N_FEATURES) / N_FEATURES ** 0.5
    x_source = torch.randn(n, N_FEATURES, generator=gen)
    x_target = torch.randn(n, N_FEATURES, generator=gen)
    label = (x_source[:, 0] + 0.5 * x_source[:, 1] > 0).long()
    target_label = (x_target[:, 0] + 0.5 * x_target[:, 1] > 0).long()
    return x_source, label, x_target + 0.7 * direction, target_label


@torch.no_grad()
def accuracy(extractor, classifier, x, y):
    return (classifier(extractor(x)).argmax(1) == y).float().mean().item()


def main():
    gen = torch.Generator().manual_seed(1)
    xs, ys, xt, yt = make_domains(512, gen)
    extractor = FeatureExtractor(N_FEATURES)
    classifier = nn.Linear(16, 2)
    discriminator = DomainDiscriminator()
    modules = nn.ModuleList([extractor, classifier, discriminator])
    optimizer = torch.optim.Adam(modules.parameters(), lr=3e-3)

    for step in range(1, STEPS + 1):
        i = torch.randint(0, len(xs), (BATCH,), generator=gen)
        j = torch.randint(0, len(xt), (BATCH,), generator=gen)
        features = extractor(torch.cat([xs[i], xt[j]]))
        label_loss = F.cross_entropy(classifier(features[:BATCH]), ys[i])
        domain = torch.cat([torch.ones(BATCH), torch.zeros(BATCH)])
        domain_loss = F.binary_cross_entropy_with_logits(discriminator(features), domain)
        optimizer.zero_grad()
        (label_loss + 0.1 * domain_loss).backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}  label loss {label_loss.item():.3f}  domain loss {domain_loss.item():.3f}")

    print(f"source accuracy {accuracy(extractor, classifier, xs, ys):.3f}")
    print(f"target accuracy {accuracy(extractor, classifier, xt, yt):.3f}")


if __name__ == "__main__":
    main()
