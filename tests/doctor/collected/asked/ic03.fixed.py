"""Saliency with a rule on the activations (plain, guided) for a residual bottleneck network."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(11)
torch.set_num_threads(1)


class Bottleneck(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.conv3 = nn.Conv2d(width, width, 1)
        self.relu1 = nn.ReLU()
        self.relu2 = nn.ReLU()
        self.relu3 = nn.ReLU()

    def forward(self, x):
        out = self.relu1(self.conv1(x))
        out = self.relu2(self.conv2(out))
        out = self.conv3(out)
        return self.relu3(out + x)


class MiniResNet(nn.Module):
    def __init__(self, width=12, blocks=3, num_classes=5):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(*[Bottleneck(width) for _ in range(blocks)])
        self.head = nn.Linear(width, num_classes)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean(dim=(2, 3)))


class ActivationRuleSaliency:
    def __init__(self, model, positive_only):
        self.model = model
        self.positive_only = positive_only
        self.active = {}
        self.handles = []
        for module in model.modules():
            if isinstance(module, nn.ReLU):
                self.handles.append(module.register_forward_hook(self.remember))
                self.handles.append(module.register_full_backward_hook(self.apply_rule))

    def remember(self, module, inputs, output):
        self.active[module] = (output.detach() > 0).float()

    def apply_rule(self, module, grad_input, grad_output):
        signal = grad_output[0]
        if self.positive_only:
            signal = signal.clamp(min=0)
        return (self.active[module] * signal,)

    def close(self):
        for handle in self.handles:
            handle.remove()
        self.active.clear()

    def __call__(self, images, targets):
        images = images.clone().requires_grad_(True)
        scores = self.model(images).gather(1, targets[:, None]).sum()
        return torch.autograd.grad(scores, images)[0]


def fit(model, images, labels, steps=20):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    images = torch.randn(20, 3, 16, 16)
    labels = torch.arange(20) % 5
    images += labels.float().view(-1, 1, 1, 1) * 0.4
    model = MiniResNet()
    print(f"loss after training {fit(model, images, labels):.3f}")
    model.eval().requires_grad_(False)

    sample, target = images[:6], labels[:6]
    inputs = sample.clone().requires_grad_(True)
    scores = model(inputs).gather(1, target[:, None]).sum()
    reference = torch.autograd.grad(scores, inputs)[0]

    plain = ActivationRuleSaliency(model, positive_only=False)
    plain_map = plain(sample, target)
    plain.close()
    guided = ActivationRuleSaliency(model, positive_only=True)
    guided_map = guided(sample, target)
    guided.close()

    error = (plain_map - reference).norm() / reference.norm()
    print(f"guided map, mean absolute value {guided_map.abs().mean().item():.5f}")
    print(f"plain rule against input gradient, relative difference: {error.item():.4f}")


if __name__ == "__main__":
    main()
