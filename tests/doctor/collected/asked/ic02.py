"""Guided backpropagation for a small texture classifier."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(3)
torch.set_num_threads(1)


class TextureNet(nn.Module):
    def __init__(self, num_classes=3):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.conv3 = nn.Conv2d(16, 16, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(16, num_classes)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = F.relu(self.conv3(x))
        return self.fc(x.mean(dim=(2, 3)))


class GuidedBackprop:
    """Lets only positive gradients pass the activations."""

    def __init__(self, model):
        self.model = model
        self.handles = []

    def __enter__(self):
        for module in self.model.modules():
            if isinstance(module, nn.ReLU):
                self.handles.append(module.register_full_backward_hook(self.keep_positive))
        return self

    def __exit__(self, *exc):
        for handle in self.handles:
            handle.remove()
        self.handles.clear()

    @staticmethod
    def keep_positive(module, grad_input, grad_output):
        return (grad_input[0].clamp(min=0),)

    def __call__(self, image, target):
        return input_gradient(self.model, image, target)


def input_gradient(model, image, target):
    image = image.clone().requires_grad_(True)
    score = model(image)[0, target]
    return torch.autograd.grad(score, image)[0]


def make_textures(per_class=12, size=16):
    grid = torch.arange(size).float()
    images, labels = [], []
    for label in range(3):
        for _ in range(per_class):
            phase = torch.rand(1) * 6.28
            wave = torch.sin(grid * (0.5 + 0.6 * label) + phase)
            image = wave.repeat(size, 1) if label != 1 else wave.repeat(size, 1).t()
            images.append(image + 0.2 * torch.randn(size, size))
            labels.append(label)
    return torch.stack(images).unsqueeze(1), torch.tensor(labels)


def fit(model, images, labels, epochs=25):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        accuracy = (model(images).argmax(1) == labels).float().mean().item()
    return loss.item(), accuracy


def main():
    images, labels = make_textures()
    model = TextureNet()
    loss, accuracy = fit(model, images, labels)
    print(f"loss {loss:.3f}  accuracy {accuracy:.2f}")
    model.eval().requires_grad_(False)

    similarities = []
    for index in (0, 13, 26):
        image, target = images[index:index + 1], labels[index].item()
        plain = input_gradient(model, image, target)
        with GuidedBackprop(model) as guided_backprop:
            guided = guided_backprop(image, target)
        similarity = F.cosine_similarity(plain.flatten(), guided.flatten(), dim=0).item()
        similarities.append(similarity)
        positive = (guided > 0).float().mean().item()
        print(f"image {index}: positive share of guided map {positive:.2f}")
    print(f"mean similarity of guided map and plain gradient: {sum(similarities) / 3:.3f}")


if __name__ == "__main__":
    main()
