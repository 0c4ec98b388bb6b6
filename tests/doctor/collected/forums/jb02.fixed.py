"""Look at the distribution of batch-norm outputs (pre-activations) of a small residual network."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(1)
torch.set_num_threads(1)


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride, bias=False)
        self.out_relu = nn.ReLU(inplace=False)

    def forward(self, x):
        h = self.relu(self.bn1(self.conv1(x)))
        h = self.bn2(self.conv2(h))
        return self.out_relu(h + self.skip(x))


class SmallResNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.stage1 = BasicBlock(3, 8)
        self.stage2 = BasicBlock(8, 16, stride=2)
        self.fc = nn.Linear(16, classes)

    def forward(self, x):
        x = self.stage2(self.stage1(x))
        return self.fc(x.mean(dim=(2, 3)))


class PreActivationTap:
    def __init__(self, model):
        self.maps = {}
        self.handles = []
        for name, module in model.named_modules():
            if isinstance(module, nn.BatchNorm2d):
                self.handles.append(module.register_forward_hook(self.make_hook(name)))

    def make_hook(self, name):
        def hook(module, inputs, output):
            self.maps[name] = output.detach().clone()
        return hook

    def close(self):
        for handle in self.handles:
            handle.remove()


def make_data(n=128):
    y = torch.randint(0, 4, (n,))
    x = torch.randn(n, 3, 12, 12) + 0.5 * y.view(-1, 1, 1, 1)
    return x, y


def main():
    model = SmallResNet()
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x, y = make_data()
    for epoch in range(3):
        for i in range(0, len(x), 32):
            loss = F.cross_entropy(model(x[i:i + 32]), y[i:i + 32])
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch} loss {loss.item():.3f}")

    model.eval()
    tap = PreActivationTap(model)
    with torch.no_grad():
        model(x[:64])
    tap.close()

    for name, z in tap.maps.items():
        negative = (z < 0).float().mean().item()
        print(f"{name:12s} mean {z.mean().item():+.3f}  std {z.std().item():.3f}  negative {100 * negative:.1f}%")


if __name__ == "__main__":
    main()
