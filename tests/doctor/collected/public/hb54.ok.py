"""Prune the filters that are rarely active (APoZ), fine-tune, and export a plain model."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.utils.prune as prune

torch.manual_seed(24)
torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, 2, 1)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1)
        self.relu = nn.ReLU()

    def forward(self, x):
        x = self.relu(self.conv1(x))
        return self.relu(self.conv2(x))


class Net(nn.Module):
    def __init__(self, num_classes=4):
        super().__init__()
        self.block1 = Block(3, 16)
        self.block2 = Block(16, 32)
        self.fc = nn.Linear(32, num_classes)

    def forward(self, x):
        return self.fc(self.block2(self.block1(x)).mean((2, 3)))


class Activity:
    """Share of positive values per channel; the two calls of a block's ReLU are told apart by their order."""

    def __init__(self, blocks):
        self.calls = {name: [] for name in blocks}
        self.handles = [block.relu.register_forward_hook(self.count(name)) for name, block in blocks.items()]

    def count(self, name):
        def hook(module, inputs, output):
            self.calls[name].append((output > 0).float().mean((0, 2, 3)))
        return hook

    def per_conv(self, name):
        return {"conv1": torch.stack(self.calls[name][0::2]).mean(0),
                "conv2": torch.stack(self.calls[name][1::2]).mean(0)}

    def remove(self):
        for handle in self.handles:
            handle.remove()


def sample(n):
    labels = torch.randint(0, 4, (n,))
    images = 0.4 * torch.randn(n, 3, 16, 16)
    for i, label in enumerate(labels.tolist()):
        images[i, label % 3, :, 8 * (label // 2):8 * (label // 2) + 8] += 1.0
    return images, labels


def train(model, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(steps):
        images, labels = sample(32)
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def accuracy(model, images, labels):
    return (model(images).argmax(1) == labels).float().mean().item()


def main():
    model = Net()
    images, labels = sample(200)
    train(model, 60)
    print(f"dense: accuracy {accuracy(model, images, labels):.3f}")

    blocks = {"block1": model.block1, "block2": model.block2}
    activity = Activity(blocks)
    with torch.no_grad():
        for part in images.split(50):
            model(part)
    activity.remove()

    pruned = []
    for name, block in blocks.items():
        for conv_name, active in activity.per_conv(name).items():
            conv = getattr(block, conv_name)
            keep = torch.ones(conv.out_channels)
            keep[active.argsort()[:conv.out_channels // 4]] = 0
            prune.custom_from_mask(conv, "weight", keep.view(-1, 1, 1, 1).expand_as(conv.weight))
            prune.custom_from_mask(conv, "bias", keep)
            pruned.append(conv)
            print(f"{name}.{conv_name}: activity {active.min():.2f} to {active.max():.2f}, "
                  f"{int(keep.sum())} of {len(keep)} filters kept")

    print(f"pruned: accuracy {accuracy(model, images, labels):.3f}")
    train(model, 40)
    tuned = accuracy(model, images, labels)
    for conv in pruned:
        prune.remove(conv, "weight")
        prune.remove(conv, "bias")
    exported = copy.deepcopy(model).eval()
    zero = sum((c.weight.flatten(1) == 0).all(1).sum().item() for c in (exported.block1.conv1, exported.block2.conv2))
    print(f"fine-tuned: accuracy {tuned:.3f}, exported: {accuracy(exported, images, labels):.3f}, "
          f"empty filters in the first and last convolution: {zero}")


if __name__ == "__main__":
    main()
