"""Post-training quantisation of a small image classifier, with a report on activation ranges."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.ao.quantization as tq

torch.manual_seed(8)
torch.set_num_threads(1)


class ConvBNReLU(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn = nn.BatchNorm2d(cout)
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.relu(self.bn(self.conv(x)))


class Net(nn.Module):
    blocks = ("stem", "block1", "block2")

    def __init__(self, num_classes=4):
        super().__init__()
        self.quant = tq.QuantStub()
        self.stem = ConvBNReLU(3, 16, 1)
        self.block1 = ConvBNReLU(16, 32, 2)
        self.block2 = ConvBNReLU(32, 32, 2)
        self.fc = nn.Linear(32, num_classes)
        self.dequant = tq.DeQuantStub()

    def forward(self, x):
        x = self.block2(self.block1(self.stem(self.quant(x))))
        return self.dequant(self.fc(x.mean((2, 3))))


class RangeReport:
    """Largest activation per block, over the calibration images."""

    def __init__(self, model, names):
        self.ranges = {}
        modules = dict(model.named_modules())
        self.handles = [modules[name].register_forward_hook(self.watch(name)) for name in names]

    def watch(self, name):
        def hook(module, inputs, output):
            largest = output.detach().abs().max().item()
            self.ranges[name] = max(largest, self.ranges.get(name, 0.0))
        return hook

    def close(self):
        for handle in self.handles:
            handle.remove()


def sample(n):
    labels = torch.randint(0, 4, (n,))
    images = 0.3 * torch.randn(n, 3, 16, 16)
    for i, label in enumerate(labels):
        y, x = 8 * (label // 2), 8 * (label % 2)
        images[i, label % 3, y:y + 8, x:x + 8] += 1.0
    return images, labels


def train(model, steps=60):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(steps):
        images, labels = sample(32)
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


@torch.no_grad()
def main_quantise(model, images):
    model.qconfig = tq.get_default_qconfig(torch.backends.quantized.engine)
    tq.fuse_modules(model, [[f"{b}.conv", f"{b}.bn", f"{b}.relu"] for b in Net.blocks], inplace=True)
    tq.prepare(model, inplace=True)
    report = RangeReport(model, [f"{b}.conv" for b in Net.blocks])
    for batch in images.split(16):
        model(batch)
    report.close()
    tq.convert(model, inplace=True)
    return report.ranges


def main():
    model = Net()
    print(f"training loss {train(model):.4f}")
    model.eval()
    images, labels = sample(64)
    with torch.no_grad():
        reference = model(images).argmax(1)

    ranges = main_quantise(model, images)
    for name, largest in ranges.items():
        print(f"{name}: largest activation {largest:.2f}")
    print(f"ranges reported for {len(ranges)} of {len(Net.blocks)} blocks")
    with torch.no_grad():
        agreement = (model(images).argmax(1) == reference).float().mean()
    print(f"agreement of the int8 model with the float model: {agreement:.2f}")


if __name__ == "__main__":
    main()
