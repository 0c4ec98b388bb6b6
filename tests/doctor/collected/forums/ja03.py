"""Layer-wise gradient x activation relevance for a small CNN."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(2)
torch.set_num_threads(1)


class ConvBlock(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels_out)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))


class SmallNet(nn.Module):
    def __init__(self, classes=4, width=12):
        super().__init__()
        self.blocks = nn.ModuleList(
            [ConvBlock(3, width), ConvBlock(width, width), ConvBlock(width, width)])
        self.classifier = nn.Linear(width, classes)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.classifier(x.mean(dim=(2, 3)))


class RelevanceExtractor:
    """Collects feature maps on the way forward and their gradients on the way back."""

    def __init__(self, model):
        self.model = model
        self.activations = []
        self.gradients = []
        self.handles = [b.register_forward_hook(self.save_activation) for b in model.blocks]

    def save_activation(self, module, args, output):
        self.activations.append(output.detach())
        output.register_hook(self.save_gradient)

    def save_gradient(self, grad):
        self.gradients.append(grad.detach())

    def __call__(self, images, target):
        self.activations.clear()
        self.gradients.clear()
        logits = self.model(images)
        self.model.zero_grad()
        logits[:, target].sum().backward()
        maps = []
        for activation, gradient in zip(self.activations, self.gradients):
            maps.append((activation * gradient).sum(dim=1))
        return logits.detach(), maps

    def close(self):
        for handle in self.handles:
            handle.remove()


def train(model, images, labels, steps=30):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(steps):
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    labels = torch.arange(48) % 4
    images = torch.randn(48, 3, 16, 16) * 0.3
    for i, label in enumerate(labels.tolist()):
        row, col = divmod(label, 2)
        images[i, label % 3, row * 8:row * 8 + 8, col * 8:col * 8 + 8] += 1.0

    model = SmallNet()
    print(f"train loss {train(model, images, labels):.4f}")
    model.eval()

    extractor = RelevanceExtractor(model)
    for target in range(4):
        batch = images[labels == target]
        logits, maps = extractor(batch, target)
        shares = [f"{m.sum(dim=(1, 2)).mean().item():+.3f}" for m in maps]
        evidence = logits[:, target] - model.classifier.bias[target].detach()
        gap = (maps[-1].sum(dim=(1, 2)) - evidence).abs().max().item()
        print(f"class {target}: relevance per block {shares}  completeness gap (last block) {gap:.4f}")
    extractor.close()


if __name__ == "__main__":
    main()
