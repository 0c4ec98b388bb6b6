"""Channel masking study: how much does accuracy suffer when feature maps are switched off?"""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)


class ConvNet(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.layer1 = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.layer2 = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.fc = nn.Linear(32 * 3 * 3, classes)

    def forward(self, x):
        x = self.layer2(self.layer1(x))
        return self.fc(x.flatten(1))


def make_dataset(count):
    prototypes = torch.randn(6, 1, 12, 12, generator=torch.Generator().manual_seed(11))
    labels = torch.randint(0, 6, (count,))
    return prototypes[labels] + 1.2 * torch.randn(count, 1, 12, 12), labels


def fit(model, images, labels, epochs=4):
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    model.train()
    for _ in range(epochs):
        for xb, yb in zip(images.split(64), labels.split(64)):
            loss = F.cross_entropy(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@torch.no_grad()
def evaluate(model, images, labels):
    model.eval()
    logits = model(images)
    accuracy = (logits.argmax(dim=1) == labels).float().mean().item()
    return F.cross_entropy(logits, labels).item(), accuracy


class ChannelMask:
    def __init__(self, layer, keep):
        self.mask = keep.float().view(1, -1, 1, 1)
        self.handle = layer.register_forward_hook(self.apply_mask)

    def apply_mask(self, module, inputs, output):
        output = output * self.mask

    def remove(self):
        self.handle.remove()


def random_keep(channels, fraction, generator):
    keep = torch.zeros(channels, dtype=torch.bool)
    chosen = torch.randperm(channels, generator=generator)[: int(channels * fraction)]
    keep[chosen] = True
    return keep


def main():
    model = ConvNet()
    images, labels = make_dataset(768)
    fit(model, images, labels)
    test_images, test_labels = make_dataset(300)
    base_loss, base_acc = evaluate(model, test_images, test_labels)
    print(f"no mask: loss {base_loss:.4f} accuracy {base_acc:.3f}")

    generator = torch.Generator().manual_seed(5)
    for fraction in (0.75, 0.5, 0.25):
        masks = [
            ChannelMask(model.layer1, random_keep(16, fraction, generator)),
            ChannelMask(model.layer2, random_keep(32, fraction, generator)),
        ]
        loss, acc = evaluate(model, test_images, test_labels)
        for mask in masks:
            mask.remove()
        print(f"keep {fraction:.0%}: loss {loss:.4f} accuracy {acc:.3f} (loss {loss - base_loss:+.4f})")


if __name__ == "__main__":
    main()
