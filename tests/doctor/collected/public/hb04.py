"""Transfer learning: train a new head on a fixed backbone, then look at heat maps."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(30)
torch.set_num_threads(1)


def conv_bn(cin, cout, stride):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU())


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = conv_bn(3, 16, 2)
        self.layer2 = conv_bn(16, 32, 1)
        self.layer3 = conv_bn(32, 32, 2)

    def forward(self, x):
        return self.layer3(self.layer2(self.layer1(x)))


class Classifier(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.backbone = Backbone()
        self.head = nn.Linear(32, num_classes)

    def forward(self, x):
        return self.head(self.backbone(x).mean((2, 3)))

    def freeze_backbone(self):
        for p in self.backbone.parameters():
            p.requires_grad = False
        self.backbone.eval()


class FlipGradCAM:
    """Grad-CAM averaged over the image and its mirror image, evidence for or against the class."""

    def __init__(self, model, layer):
        self.model = model
        self.maps, self.grads = [], []
        self.handles = [layer.register_forward_hook(self.on_forward),
                        layer.register_full_backward_hook(self.on_backward)]

    def on_forward(self, module, inputs, output):
        self.maps.append(output.detach())

    def on_backward(self, module, grad_input, grad_output):
        self.grads.append(grad_output[0].detach())

    def __call__(self, image, label):
        self.maps.clear()
        self.grads.clear()
        views = [image, image.flip(-1)]
        for view in views:
            self.model(view)[0, label].backward()
        self.model.zero_grad()
        weights = sum(g.mean((2, 3), keepdim=True) for g in self.grads) / len(views)
        activation = (self.maps[0] + self.maps[1].flip(-1)) / 2
        cam = (weights * activation).sum(1)[0].abs()
        return cam / cam.max().clamp(min=1e-8)

    def remove(self):
        for handle in self.handles:
            handle.remove()


def sample(n):
    labels = torch.randint(0, 2, (n,))
    images = 0.1 * torch.randn(n, 3, 32, 32)
    boxes = []
    for i, label in enumerate(labels):
        y, x = torch.randint(0, 20, (2,)).tolist()
        images[i, 2 * label, y:y + 12, x:x + 12] += 1.0
        boxes.append((y, x))
    return images, labels, boxes


def main():
    model = Classifier(num_classes=2)
    model.freeze_backbone()
    optimizer = torch.optim.Adam(model.head.parameters(), lr=0.3)
    for step in range(80):
        images, labels, _ = sample(32)
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    optimizer.zero_grad()
    print(f"head trained, loss {loss.item():.3f}")

    model.eval()
    cam = FlipGradCAM(model, model.backbone.layer3)
    images, labels, boxes = sample(5)
    for image, label, (y, x) in zip(images, labels, boxes):
        heat = F.interpolate(cam(image[None], label)[None, None], size=32, mode="nearest")[0, 0]
        inside = heat[y:y + 12, x:x + 12].mean()
        print(f"class {label.item()}: peak of the heat map {heat.max():.3f}, mean inside the box {inside:.3f}")
    cam.remove()


if __name__ == "__main__":
    main()
