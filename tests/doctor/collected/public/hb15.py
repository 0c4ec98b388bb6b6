"""Global magnitude pruning of a small convolutional net, fine-tuned with averaged weights."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.utils.prune as prune

torch.manual_seed(14)
torch.set_num_threads(1)


class ConvNet(nn.Module):
    def __init__(self, num_classes=4):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, 1, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        )
        self.classifier = nn.Linear(32, num_classes)

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))

    def prunable(self):
        return [(m, "weight") for m in self.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]


class WeightAverage:
    def __init__(self, model, decay=0.9):
        self.decay = decay
        self.state = copy.deepcopy(model).state_dict()

    def update(self, model):
        for name, value in model.state_dict().items():
            if value.dtype.is_floating_point:
                self.state[name].lerp_(value, 1 - self.decay)
            else:
                self.state[name].copy_(value)


def sample(n):
    labels = torch.randint(0, 4, (n,))
    images = 0.5 * torch.randn(n, 3, 16, 16)
    for i, label in enumerate(labels.tolist()):
        images[i, label % 3, :, 8 * (label // 2):8 * (label // 2) + 8] += 1.0
    return images, labels


def train(model, steps, average=None):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    model.train()
    for _ in range(steps):
        images, labels = sample(32)
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if average is not None:
            average.update(model)


@torch.no_grad()
def evaluate(model, images, labels):
    model.eval()
    return (model(images).argmax(1) == labels).float().mean().item()


def main():
    model = ConvNet()
    images, labels = sample(200)
    train(model, 60)
    print(f"dense model: accuracy {evaluate(model, images, labels):.3f}")

    prune.global_unstructured(model.prunable(), pruning_method=prune.L1Unstructured, amount=0.8)
    average = WeightAverage(model)
    train(model, 40, average)
    print(f"pruned model: accuracy {evaluate(model, images, labels):.3f}")

    model.load_state_dict(average.state)
    print(f"averaged model: accuracy {evaluate(model, images, labels):.3f}")
    for module, name in model.prunable():
        prune.remove(module, name)
    weights = torch.cat([m.weight.flatten() for m, _ in model.prunable()])
    print(f"zero weights: {(weights == 0).float().mean():.2f}")


if __name__ == "__main__":
    main()
