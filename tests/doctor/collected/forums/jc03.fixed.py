"""Layer attribution (gradient x activation) on the batch-norm outputs of a CNN,
plus a table of how often every channel is below zero before the non-linearity."""
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(21)


def conv_block(cin, cout, stride):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
    )


class SmallCNN(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.layers = nn.Sequential(conv_block(1, 8, 1), conv_block(8, 16, 2), conv_block(16, 16, 2))
        self.head = nn.Linear(16, classes)

    def forward(self, x):
        return self.head(self.layers(x).mean(dim=(2, 3)))


class PreActivationProbe:
    def __init__(self, model):
        self.values = {}
        self.grads = {}
        self.handles = []
        for name, module in model.named_modules():
            if isinstance(module, nn.BatchNorm2d):
                self.handles.append(module.register_forward_hook(self.hook_for(name)))

    def hook_for(self, name):
        def keep_gradient(grad):
            self.grads[name] = grad.detach()

        def hook(module, inputs, output):
            self.values[name] = output.detach().clone()
            output.register_hook(keep_gradient)
        return hook

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for handle in self.handles:
            handle.remove()


def make_dataset(n=256):
    generator = torch.Generator().manual_seed(4)
    labels = torch.randint(0, 4, (n,), generator=generator)
    images = 0.5 * torch.randn(n, 1, 16, 16, generator=generator)
    for i, label in enumerate(labels.tolist()):
        row, col = 8 * (label // 2), 8 * (label % 2)
        images[i, 0, row:row + 8, col:col + 8] += 0.8 * (1 + label)
    return images, labels


def fit(model, images, labels, steps=30):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    criterion = nn.CrossEntropyLoss()
    model.train()
    for step in range(steps):
        index = torch.randint(0, len(images), (64,))
        optimizer.zero_grad()
        loss = criterion(model(images[index]), labels[index])
        loss.backward()
        optimizer.step()
    print(f"final training loss {loss.item():.3f}")


def main():
    images, labels = make_dataset()
    model = SmallCNN()
    fit(model, images, labels)
    model.eval()
    with PreActivationProbe(model) as probe:
        logits = model(images[:64])
        logits.gather(1, labels[:64, None]).sum().backward()

    negative_total, count_total = 0, 0
    for name, value in probe.values.items():
        attribution = (value * probe.grads[name]).sum(dim=(2, 3)).mean(dim=0)
        negative = (value < 0).float().mean().item()
        negative_total += (value < 0).sum().item()
        count_total += value.numel()
        print(f"{name}: negative {100 * negative:.1f}%, mean {value.mean().item():+.3f}, "
              f"top channel {attribution.abs().argmax().item()}")
    print(f"below zero before the ReLU: {100 * negative_total / count_total:.1f}%")


if __name__ == "__main__":
    main()
