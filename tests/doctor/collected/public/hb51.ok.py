"""Grad-CAM for a VGG with in-place activations whose convolutions are all frozen."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(21)
torch.set_num_threads(1)


class VGG(nn.Module):
    def __init__(self, num_classes=3):
        super().__init__()
        layers, cin = [], 3
        for v in (16, "M", 32, "M", 32):
            if v == "M":
                layers.append(nn.MaxPool2d(2))
            else:
                layers += [nn.Conv2d(cin, v, 3, padding=1), nn.ReLU(inplace=True)]
                cin = v
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(cin, num_classes)

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


class GradCAM:
    """Activation and gradient of the output of a convolution, before the in-place ReLU that follows."""

    def __init__(self, model, layer):
        self.model = model
        self.layer = layer
        self.activation = self.gradient = None

    def keep_activation(self, module, inputs, output):
        self.activation = output.detach().clone()
        output.register_hook(self.keep_gradient)

    def keep_gradient(self, gradient):
        self.gradient = gradient.detach()

    def __call__(self, image, label):
        image = image.clone().requires_grad_(True)
        with self.layer.register_forward_hook(self.keep_activation):
            score = self.model(image)[0, label]
        torch.autograd.grad(score, image)
        weights = self.gradient.mean((2, 3), keepdim=True)
        cam = (weights * self.activation).sum(1, keepdim=True)
        self.activation = self.gradient = None
        return F.interpolate(cam.abs(), size=image.shape[-2:], mode="bilinear")[0, 0]


def sample(n):
    labels = torch.randint(0, 3, (n,))
    images = 0.1 * torch.randn(n, 3, 32, 32)
    boxes = []
    for i, label in enumerate(labels.tolist()):
        y, x = torch.randint(0, 20, (2,)).tolist()
        images[i, label, y:y + 12, x:x + 12] += 1.0
        boxes.append((y, x))
    return images, labels, boxes


def train_head(model, steps=60):
    model.features.requires_grad_(False)
    optimizer = torch.optim.Adam(model.classifier.parameters(), lr=0.1)
    for _ in range(steps):
        images, labels, _ = sample(32)
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def main():
    model = VGG()
    print(f"head trained, loss {train_head(model):.3f}")
    model.eval()
    cam = GradCAM(model, model.features[6])
    images, labels, boxes = sample(5)
    for image, label, (y, x) in zip(images, labels.tolist(), boxes):
        heat = cam(image[None], label)
        share = heat[y:y + 12, x:x + 12].sum() / heat.sum()
        print(f"class {label}: {share:.2f} of the heat lies in the box, "
              f"which covers {144 / 1024:.2f} of the image")
    print("head gradients left behind:", sum(p.grad is not None for p in model.parameters()))


if __name__ == "__main__":
    main()
