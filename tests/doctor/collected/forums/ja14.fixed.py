"""Domain-adversarial training (source labels, unlabeled target) with a gradient reversal hook."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(13)
torch.set_num_threads(1)


def grl_hook(coefficient):
    def reverse(grad):
        return -coefficient * grad.clone()
    return reverse


class FeatureExtractor(nn.Module):
    def __init__(self, inputs=10, features=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, features))

    def forward(self, x):
        return self.net(x)


class AdversarialNetwork(nn.Module):
    def __init__(self, features=16, hidden=32):
        super().__init__()
        self.layer1 = nn.Linear(features, hidden)
        self.layer2 = nn.Linear(hidden, 1)
        self.coefficient = 0.3

    def forward(self, x):
        x = x * 1.0
        if self.training:
            x.register_hook(grl_hook(self.coefficient))
        x = F.relu(self.layer1(x))
        return self.layer2(x).squeeze(-1)


def make_domains(n=300):
    centers = 1.2 * torch.randn(3, 10)
    labels = torch.randint(0, 3, (2 * n,))
    points = centers[labels] + 0.7 * torch.randn(2 * n, 10)
    shift = torch.zeros(10)
    shift[7:] = 1.5
    return (points[:n], labels[:n]), (points[n:] + shift, labels[n:])


@torch.no_grad()
def evaluate(extractor, classifier, x, y):
    logits = classifier(extractor(x))
    return F.cross_entropy(logits, y).item(), (logits.argmax(dim=1) == y).float().mean().item()


def main():
    (source_x, source_y), (target_x, target_y) = make_domains()
    extractor = FeatureExtractor()
    classifier = nn.Linear(16, 3)
    adversary = AdversarialNetwork()
    modules = nn.ModuleList([extractor, classifier, adversary])
    optimizer = torch.optim.SGD(modules.parameters(), lr=0.02, momentum=0.9)
    domain = torch.cat([torch.ones(50), torch.zeros(50)])

    print(f"source loss at start {evaluate(extractor, classifier, source_x, source_y)[0]:.3f}")
    for epoch in range(15):
        source_order = torch.randperm(len(source_x)).split(50)
        target_order = torch.randperm(len(target_x)).split(50)
        for source_batch, target_batch in zip(source_order, target_order):
            features = extractor(torch.cat([source_x[source_batch], target_x[target_batch]]))
            class_loss = F.cross_entropy(classifier(features[:50]), source_y[source_batch])
            domain_loss = F.binary_cross_entropy_with_logits(adversary(features), domain)
            optimizer.zero_grad()
            (class_loss + domain_loss).backward()
            nn.utils.clip_grad_norm_(modules.parameters(), 2.0)
            optimizer.step()

    modules.eval()
    source_loss, source_accuracy = evaluate(extractor, classifier, source_x, source_y)
    _, target_accuracy = evaluate(extractor, classifier, target_x, target_y)
    print(f"source loss at end {source_loss:.3f}")
    print(f"accuracy: source {source_accuracy:.2f}  target {target_accuracy:.2f}")


if __name__ == "__main__":
    main()
