"""Input-gradient maps of one image for every class of a classifier."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(12)
torch.set_num_threads(1)

CLASSES = 4


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(),
        )
        self.fc = nn.Linear(16 * 36, CLASSES)

    def forward(self, x):
        return self.fc(self.features(x).flatten(1))


class Backprop:
    """Vanilla saliency: collects the gradient that arrives at the image."""

    def __init__(self, model):
        self.model = model.eval()
        self.maps = []

    def hook_input(self, image):
        def save(grad):
            self.maps.append(grad[0, 0].clone())
        return image.register_hook(save)

    def generate(self, image, target):
        handle = self.hook_input(image)
        self.model.zero_grad()
        self.model(image)[0, target].backward()
        handle.remove()


def make_images(n):
    labels = torch.randint(0, CLASSES, (n,))
    images = torch.randn(n, 1, 12, 12) * 0.3
    for i, label in enumerate(labels.tolist()):
        row, col = divmod(label, 2)
        images[i, 0, 6 * row:6 * row + 6, 6 * col:6 * col + 6] += 1.0
    return images, labels


def train(model, images, labels):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(6):
        for batch in torch.randperm(len(images)).split(32):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
    return loss.item()


def main():
    images, labels = make_images(192)
    model = Classifier()
    print(f"loss {train(model, images, labels):.3f}")

    image = images[:1].clone().requires_grad_(True)
    explainer = Backprop(model)
    for target in range(CLASSES):
        explainer.generate(image, target)

    print(f"maps collected for {CLASSES} classes: {len(explainer.maps)}")
    reference = explainer.maps[0].flatten()
    for target, saliency in zip(range(CLASSES), explainer.maps):
        cosine = F.cosine_similarity(reference, saliency.flatten(), dim=0).item()
        print(f"class {target}: |grad| {saliency.abs().sum():.3f}, cosine to class 0 {cosine:+.3f}")


if __name__ == "__main__":
    main()
