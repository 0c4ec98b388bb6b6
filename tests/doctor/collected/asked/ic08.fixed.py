"""Input saliency taken at the first convolution of a classifier."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(9)
torch.set_num_threads(1)


class FlowerNet(nn.Module):
    def __init__(self, num_classes=3):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 12, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
        )
        self.classifier = nn.Linear(24, num_classes)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


class VanillaSaliency:
    """The gradient that leaves the first layer is the gradient of the picture."""

    def __init__(self, model):
        self.model = model
        self.gradients = None
        first_layer = model.features[0]
        self.handle = first_layer.register_full_backward_hook(self.save_gradient)

    def save_gradient(self, module, grad_input, grad_output):
        self.gradients = grad_input[0]

    def generate(self, image, target):
        self.gradients = None
        self.model.zero_grad()
        output = self.model(image.clone().requires_grad_(True))
        one_hot = torch.zeros_like(output)
        one_hot[0, target] = 1.0
        output.backward(gradient=one_hot)
        return self.gradients

    def close(self):
        self.handle.remove()


def make_pictures(count=30, size=20):
    labels = torch.arange(count) % 3
    pictures = 0.2 * torch.rand(count, 3, size, size)
    centers = torch.randint(5, size - 5, (count, 2))
    for i in range(count):
        row, col = centers[i].tolist()
        pictures[i, labels[i], row - 3:row + 4, col - 3:col + 4] += 0.8
    return pictures, labels, centers


def fit(model, pictures, labels, steps=40):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(pictures), labels)
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    pictures, labels, centers = make_pictures()
    model = FlowerNet()
    print(f"training loss {fit(model, pictures, labels):.3f}")
    model.eval()

    saliency = VanillaSaliency(model)
    maps = {}
    for index in range(6):
        gradient = saliency.generate(pictures[index:index + 1], labels[index].item())
        if gradient is None:
            continue
        maps[index] = gradient[0].abs().amax(dim=0)
    saliency.close()

    for index, saliency_map in maps.items():
        row, col = centers[index].tolist()
        inside = saliency_map[row - 3:row + 4, col - 3:col + 4].sum() / saliency_map.sum()
        print(f"picture {index}: share of saliency on the flower {inside.item():.2f}")
    print(f"saliency maps produced: {len(maps)} of 6")


if __name__ == "__main__":
    main()
