"""Widen a trained convolution for a second task; the old filters must stay as they are."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(12)
torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self, width, num_classes):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 5, stride=2, padding=2)
        self.head = nn.Linear(width, num_classes)

    def forward(self, x):
        return self.head(F.relu(self.conv(x)).mean((2, 3)))


def widen(old, extra, num_classes):
    old_width = old.conv.out_channels
    new = Net(old_width + extra, num_classes)
    with torch.no_grad():
        new.conv.weight[:old_width] = old.conv.weight
        new.conv.bias[:old_width] = old.conv.bias
    return new


def protect(parameter, first):
    """Gradient only for the entries from `first` on."""
    mask = torch.ones_like(parameter)
    mask[:first] = 0
    return parameter.register_hook(lambda grad: grad * mask)


def sample(n, task):
    labels = torch.randint(0, 3, (n,))
    ys, xs = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    images = 0.2 * torch.randn(n, 3, 16, 16)
    for i, label in enumerate(labels.tolist()):
        if task == "colour":
            images[i, label] += 0.7
        else:
            wave = [ys, xs, ys + xs][label]
            images[i] += torch.sin(1.2 * wave)
    return images, labels


def train(model, optimizer, task, steps):
    for _ in range(steps):
        images, labels = sample(32, task)
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


@torch.no_grad()
def accuracy(model, task):
    images, labels = sample(200, task)
    return (model(images).argmax(1) == labels).float().mean().item()


def main():
    first = Net(width=8, num_classes=3)
    optimizer = torch.optim.SGD(first.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-3)
    print(f"first task: loss {train(first, optimizer, 'colour', 80):.3f}")
    print(f"first task: accuracy {accuracy(first, 'colour'):.3f}")

    second = widen(first, extra=16, num_classes=3)
    handles = [protect(second.conv.weight, 8), protect(second.conv.bias, 8)]
    optimizer = torch.optim.SGD(second.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-3)
    print(f"second task: loss {train(second, optimizer, 'waves', 80):.3f}")
    print(f"second task: accuracy {accuracy(second, 'waves'):.3f}")
    for handle in handles:
        handle.remove()

    moved = (second.conv.weight[:8] - first.conv.weight).abs().max().item()
    ratio = (second.conv.weight[:8].norm() / first.conv.weight.norm()).item()
    print(f"old filters: norm ratio {ratio:.3f}, moved by at most {moved:.4f}")


if __name__ == "__main__":
    main()
