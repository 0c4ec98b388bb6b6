"""Reports the distribution of pre-activations (input of the nonlinearity) of a convnet."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(17)
torch.set_num_threads(1)


def conv_block(inputs, outputs, stride=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class ConvNet(nn.Module):
    def __init__(self, num_classes=4):
        super().__init__()
        self.block1 = conv_block(1, 8)
        self.block2 = conv_block(8, 16, stride=2)
        self.block3 = conv_block(16, 24, stride=2)
        self.head = nn.Linear(24, num_classes)

    def forward(self, x):
        x = self.block3(self.block2(self.block1(x)))
        return self.head(x.mean(dim=(2, 3)))


class PreActivations:
    """Keeps the output of every normalization layer, i.e. what the nonlinearity gets."""

    def __init__(self, model):
        self.values = {}
        self.handles = []
        for name, module in model.named_modules():
            if isinstance(module, nn.BatchNorm2d):
                self.handles.append(module.register_forward_hook(self.make_hook(name)))

    def make_hook(self, name):
        def hook(module, inputs, output):
            self.values[name] = output.detach().clone()
        return hook

    def close(self):
        for handle in self.handles:
            handle.remove()


def make_data(count=96, size=14):
    labels = torch.arange(count) % 4
    images = 0.5 * torch.randn(count, 1, size, size)
    half = size // 2
    for i, label in enumerate(labels.tolist()):
        top, left = half * (label // 2), half * (label % 2)
        images[i, 0, top:top + half, left:left + half] += torch.linspace(0, 1, half)
    return images, labels


def fit(model, images, labels, epochs=4):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    model.train()
    for epoch in range(epochs):
        for start in range(0, len(images), 32):
            optimizer.zero_grad()
            logits = model(images[start:start + 32])
            loss = F.cross_entropy(logits, labels[start:start + 32])
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


@torch.no_grad()
def report(model, images):
    model.eval()
    probe = PreActivations(model)
    model(images)
    probe.close()
    for name, value in probe.values.items():
        per_channel = value.transpose(0, 1).flatten(1)
        dead = (per_channel.amax(dim=1) <= 0).sum().item()
        negative = (value < 0).float().mean().item()
        print(f"{name}: mean {value.mean().item():+.3f}  std {value.std().item():.3f}  "
              f"negative {100 * negative:.1f}%  dead channels {dead}")


def main():
    images, labels = make_data()
    model = ConvNet()
    fit(model, images, labels)
    report(model, images[:32])


if __name__ == "__main__":
    main()
