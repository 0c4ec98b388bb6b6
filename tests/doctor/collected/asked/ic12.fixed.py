"""Domain-adversarial training: the domain branch should see a reversed gradient."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(1)
torch.set_num_threads(1)


class DomainAdversarialNet(nn.Module):
    def __init__(self, inputs=8, hidden=32, classes=3):
        super().__init__()
        self.extractor = nn.Sequential(
            nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )
        self.label_head = nn.Linear(hidden, classes)
        self.domain_head = nn.Sequential(nn.Linear(hidden, 16), nn.ReLU(), nn.Linear(16, 2))
        self.coeff = 0.0

    def reverse(self, grad):
        return -self.coeff * grad

    def forward(self, x):
        features = self.extractor(x)
        domain_features = features.view_as(features)
        if domain_features.requires_grad:
            domain_features.register_hook(self.reverse)
        return self.label_head(features), self.domain_head(domain_features)


def make_domains(count=300):
    centers = torch.randn(3, 8) * 2
    labels = torch.randint(0, 3, (count,))
    source = centers[labels] + torch.randn(count, 8)
    target_labels = torch.randint(0, 3, (count,))
    shift = torch.randn(8) * 0.8
    target = centers[target_labels] + torch.randn(count, 8) + shift
    return source, labels, target, target_labels


class Trainer:
    def __init__(self, model, epochs=12, batch_size=50):
        self.model = model
        self.epochs = epochs
        self.batch_size = batch_size
        self.optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def step(self, source, labels, target):
        self.optimizer.zero_grad()
        inputs = torch.cat([source, target])
        label_logits, domain_logits = self.model(inputs)
        domains = torch.cat([torch.zeros(len(source)), torch.ones(len(target))]).long()
        label_loss = F.cross_entropy(label_logits[: len(source)], labels)
        domain_loss = F.cross_entropy(domain_logits, domains)
        (label_loss + domain_loss).backward()
        self.optimizer.step()
        return label_loss.item(), domain_loss.item()

    def fit(self, source, labels, target):
        for epoch in range(self.epochs):
            self.model.coeff = 0.3 * (epoch + 1) / self.epochs
            order = torch.randperm(len(source))
            for start in range(0, len(source), self.batch_size):
                index = order[start:start + self.batch_size]
                label_loss, domain_loss = self.step(source[index], labels[index], target[index])
            if epoch % 4 == 3:
                print(f"epoch {epoch + 1}: label loss {label_loss:.3f}  domain loss {domain_loss:.3f}")


@torch.no_grad()
def accuracy(model, inputs, labels):
    logits, _ = model(inputs)
    return (logits.argmax(1) == labels).float().mean().item()


def main():
    source, labels, target, target_labels = make_domains()
    model = DomainAdversarialNet()
    Trainer(model).fit(source, labels, target)
    model.eval()
    print(f"label accuracy on the source domain: {accuracy(model, source, labels):.2f}")
    print(f"label accuracy on the target domain: {accuracy(model, target, target_labels):.2f}")


if __name__ == "__main__":
    main()
