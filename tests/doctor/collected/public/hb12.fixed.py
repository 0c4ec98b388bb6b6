"""Which filters matter? Switch off groups of channels and measure the loss."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(11)
torch.set_num_threads(1)


class SmallCNN(nn.Module):
    def __init__(self, num_classes=3):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.conv3 = nn.Conv2d(16, 16, 3, padding=1)
        self.fc = nn.Linear(16, num_classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.conv3(x))
        return self.fc(x.mean((2, 3)))


class ChannelSwitch:
    """Context manager: sets some output channels of a layer to zero."""

    def __init__(self, layer, channels):
        self.layer = layer
        self.keep = torch.ones(layer.out_channels)
        self.keep[channels] = 0

    def switch_off(self, module, inputs, output):
        return output * self.keep.view(1, -1, 1, 1)

    def __enter__(self):
        self.handle = self.layer.register_forward_hook(self.switch_off)

    def __exit__(self, *exc):
        self.handle.remove()


def sample(n):
    """Horizontal stripes, vertical stripes, or a checkerboard."""
    labels = torch.randint(0, 3, (n,))
    ys, xs = torch.meshgrid(torch.arange(16), torch.arange(16), indexing="ij")
    patterns = torch.stack([(ys // 2) % 2, (xs // 2) % 2, (ys // 2 + xs // 2) % 2]).float()
    images = patterns[labels].unsqueeze(1) + 0.5 * torch.randn(n, 1, 16, 16)
    return images, labels


def train(model, steps=120):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(steps):
        images, labels = sample(32)
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def evaluate(model, images, labels):
    logits = model(images)
    accuracy = (logits.argmax(1) == labels).float().mean().item()
    return F.cross_entropy(logits, labels).item(), accuracy


def main():
    model = SmallCNN()
    train(model)
    model.eval()
    images, labels = sample(256)
    base_loss, base_accuracy = evaluate(model, images, labels)
    print(f"all channels: loss {base_loss:.4f}, accuracy {base_accuracy:.3f}")

    effects = {}
    for name in ("conv2", "conv3"):
        layer = getattr(model, name)
        for first in range(0, layer.out_channels, 4):
            channels = list(range(first, first + 4))
            with ChannelSwitch(layer, channels):
                loss, accuracy = evaluate(model, images, labels)
            effects[name, first] = loss - base_loss
            print(f"{name} without channels {first}-{first + 3}: loss {loss:.4f}, accuracy {accuracy:.3f}")

    largest = max(effects.values(), key=abs)
    print(f"largest change of the loss: {largest:.4f}")


if __name__ == "__main__":
    main()
