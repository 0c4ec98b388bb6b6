"""Pre-activation statistics of a VGG-like network, used to pick clipping ranges."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)


def conv_block(cin, cout):
    return [nn.Conv2d(cin, cout, 3, padding=1), nn.ReLU(inplace=True)]


class SmallVGG(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.features = nn.Sequential(
            *conv_block(3, 12),
            *conv_block(12, 12),
            nn.MaxPool2d(2),
            *conv_block(12, 24),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Linear(24 * 4 * 4, classes)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


class PreActivationRecorder:
    """Keeps the convolution outputs of the last forward pass."""

    def __init__(self, model):
        self.outputs = {}
        self.handles = []
        for name, module in model.named_modules():
            if isinstance(module, nn.Conv2d):
                self.handles.append(module.register_forward_hook(self._record(name)))

    def _record(self, name):
        def hook(module, args, output):
            self.outputs[name] = output.detach()

        return hook

    def remove(self):
        for handle in self.handles:
            handle.remove()


def make_batches(count):
    prototypes = torch.randn(5, 3, 16, 16, generator=torch.Generator().manual_seed(7))
    for _ in range(count):
        labels = torch.randint(0, 5, (32,))
        yield prototypes[labels] + 0.7 * torch.randn(32, 3, 16, 16), labels


def train(model, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for x, y in make_batches(steps):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


@torch.no_grad()
def clipping_ranges(model, batches=4):
    recorder = PreActivationRecorder(model)
    low, high, negative = {}, {}, {}
    for x, _ in make_batches(batches):
        model(x)
        for name, out in recorder.outputs.items():
            flat = out.flatten()
            low.setdefault(name, []).append(flat.quantile(0.01))
            high.setdefault(name, []).append(flat.quantile(0.99))
            negative.setdefault(name, []).append((flat < 0).float().mean())
    recorder.remove()
    return {
        name: tuple(torch.stack(values[name]).mean().item() for values in (low, high, negative))
        for name in low
    }


def main():
    model = SmallVGG()
    loss = train(model, steps=40)
    print(f"loss after training: {loss:.3f}")
    model.eval()
    for name, (low, high, negative) in clipping_ranges(model).items():
        print(f"{name}: clip to [{low:.3f}, {high:.3f}], {negative:.1%} negative")


if __name__ == "__main__":
    main()
