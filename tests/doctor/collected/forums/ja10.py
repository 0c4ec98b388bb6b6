"""Guided-backprop style saliency maps of one image for all classes."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(9)
torch.set_num_threads(1)


class Classifier(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
        )
        self.head = nn.Linear(64, classes)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


class SaliencyGenerator:
    def __init__(self, model):
        self.model = model.eval()
        self.maps = []

    def store(self, grad):
        self.maps.append(grad[0].abs().sum(dim=0))

    def generate(self, image, target):
        image.requires_grad_(True)
        image.register_hook(self.store)
        scores = self.model(image)
        self.model.zero_grad()
        scores[0, target].backward()
        return self.maps[-1]

    def average_map(self):
        return torch.stack(self.maps).mean(dim=0)


def draw_shape(kind, size=20):
    canvas = torch.zeros(size, size)
    if kind == 0:
        canvas[4:16, 9:11] = 1
    elif kind == 1:
        canvas[9:11, 4:16] = 1
    elif kind == 2:
        canvas[5:15, 5:15] = 1
    elif kind == 3:
        canvas[range(3, 17), range(3, 17)] = 1
    else:
        canvas[5:15, 5] = canvas[5:15, 14] = canvas[5, 5:15] = canvas[14, 5:15] = 1
    return canvas


def make_dataset(n=200):
    labels = torch.arange(n) % 5
    images = torch.stack([draw_shape(k) for k in labels.tolist()])
    return (images + 0.2 * torch.randn(n, 20, 20)).unsqueeze(1), labels


def train(model, images, labels, epochs=6):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(40):
            loss = F.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"training loss {loss.item():.4f}")


def main():
    images, labels = make_dataset()
    model = Classifier()
    train(model, images, labels)

    generator = SaliencyGenerator(model)
    image = images[:1].clone()
    expected = torch.zeros(20, 20)
    for target in range(5):
        saliency = generator.generate(image, target)
        expected += saliency / 5
        print(f"class {target}: saliency mass {saliency.sum().item():.3f}")

    average = generator.average_map()
    print(f"maps in the average: {len(generator.maps)}")
    print(f"mass of the average map {average.sum().item():.3f}, mean of the masses {expected.sum().item():.3f}")


if __name__ == "__main__":
    main()
