"""Guided backpropagation for a CIFAR style residual network."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(4)
torch.set_num_threads(1)


class BasicBlock(nn.Module):
    def __init__(self, in_planes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_planes != planes:
            self.shortcut = nn.Sequential(nn.Conv2d(in_planes, planes, 1, stride, bias=False),
                                          nn.BatchNorm2d(planes))

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return F.relu(out + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = BasicBlock(16, 16)
        self.layer2 = BasicBlock(16, 32, stride=2)
        self.linear = nn.Linear(32, num_classes)

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.layer2(self.layer1(out))
        return self.linear(out.mean((2, 3)))


class GuidedBackprop:
    def __init__(self, model):
        self.model = model
        self.handles = []

    def __enter__(self):
        for module in self.model.modules():
            if isinstance(module, nn.ReLU):
                self.handles.append(module.register_full_backward_hook(self.clip_gradient))
        return self

    def __exit__(self, *exc):
        while self.handles:
            self.handles.pop().remove()

    @staticmethod
    def clip_gradient(module, grad_input, grad_output):
        return (grad_input[0].clamp(min=0),)


def input_gradient(model, image, label):
    image = image.clone().requires_grad_(True)
    score = model(image)[0, label]
    gradient, = torch.autograd.grad(score, image)
    return gradient[0]


def to_picture(gradient):
    gradient = gradient - gradient.min()
    return gradient / gradient.max().clamp(min=1e-8)


def main():
    model = ResNet()
    with torch.no_grad():
        for _ in range(5):
            model(torch.randn(32, 3, 32, 32))
    model.eval()

    images = torch.randn(4, 3, 32, 32)
    similarity = []
    for i, image in enumerate(images):
        label = model(image[None]).argmax().item()
        plain = input_gradient(model, image[None], label)
        with GuidedBackprop(model):
            guided = input_gradient(model, image[None], label)
        similarity.append(F.cosine_similarity(plain.flatten(), guided.flatten(), dim=0))
        picture = to_picture(guided)
        print(f"image {i}: class {label}, brightness {picture.mean():.3f}, "
              f"gradient norm {guided.norm():.4f}")
    print(f"similarity of guided and plain gradients: {torch.stack(similarity).mean():.4f}")


if __name__ == "__main__":
    main()
