"""Grad-CAM over several stages of a small residual network."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(1)
torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut = nn.AvgPool2d(stride) if stride > 1 else nn.Identity()

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return F.relu(out + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, width=16, num_classes=3):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 1, 1)
        self.layer1 = Block(width, 1)
        self.layer2 = Block(width, 2)
        self.layer3 = Block(width, 2)
        self.fc = nn.Linear(width, num_classes)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(self.stem(x))))
        return self.fc(x.mean((2, 3)))


class ActivationsAndGradients:
    def __init__(self, model, target_layers):
        self.model = model
        self.activations, self.gradients, self.handles = [], [], []
        for layer in target_layers:
            self.handles.append(layer.register_forward_hook(self.save_activation))
            self.handles.append(layer.register_full_backward_hook(self.save_gradient))

    def save_activation(self, module, inputs, output):
        self.activations.append(output.detach())

    def save_gradient(self, module, grad_input, grad_output):
        self.gradients.insert(0, grad_output[0].detach())

    def __call__(self, x):
        self.activations.clear()
        self.gradients.clear()
        return self.model(x)

    def release(self):
        for handle in self.handles:
            handle.remove()


def grad_cam(recorder, image, label):
    recorder.model.zero_grad()
    recorder(image)[0, label].backward()
    cams = []
    for activation, gradient in zip(recorder.activations, recorder.gradients):
        weights = gradient.mean((2, 3), keepdim=True)
        cam = F.relu((weights * activation).sum(1, keepdim=True))
        cams.append(F.interpolate(cam, size=image.shape[-2:], mode="bilinear")[0, 0])
    return cams


def sample(n):
    labels = torch.randint(0, 3, (n,))
    images = 0.2 * torch.randn(n, 3, 32, 32)
    for i, label in enumerate(labels):
        y, x = torch.randint(0, 22, (2,)).tolist()
        images[i, label, y:y + 10, x:x + 10] += 1.5
    return images, labels


def main():
    model = ResNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(40):
        images, labels = sample(32)
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"training loss {loss.item():.3f}")

    model.eval()
    recorder = ActivationsAndGradients(model, [model.layer1, model.layer2, model.layer3])
    images, labels = sample(6)
    ratios = []
    for image, label in zip(images, labels):
        cams = grad_cam(recorder, image[None], label)
        last = recorder.activations[-1]
        reference = F.relu((model.fc.weight[label].detach().view(1, -1, 1, 1) * last).sum(1, keepdim=True))
        reference = F.interpolate(reference, size=image.shape[-2:], mode="bilinear")[0, 0]
        ratios.append(cams[-1].sum() * last[0, 0].numel() / reference.sum())
        print("class", label.item(), "heat per stage", [f"{c.mean():.4f}" for c in cams])
    recorder.release()
    print(f"last stage: heat relative to the map from the classifier weights {torch.stack(ratios).mean():.4f}")


if __name__ == "__main__":
    main()
