"""Pre-activation statistics of a conv net: how much of the signal is below zero before the ReLU?"""
import torch
import torch.nn as nn


def conv_block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
    )


class SmallNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stage1 = conv_block(3, 8)
        self.stage2 = conv_block(8, 16)
        self.stage3 = conv_block(16, 16)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(16, 5)

    def forward(self, x):
        x = self.stage1(x)
        x = nn.functional.max_pool2d(self.stage2(x), 2)
        x = self.stage3(x)
        return self.fc(self.pool(x).flatten(1))


class PreActivationProbe:
    def __init__(self, model):
        self.values = {}
        self.handles = [
            m.register_forward_hook(self._store(name))
            for name, m in model.named_modules()
            if isinstance(m, nn.BatchNorm2d)
        ]

    def _store(self, name):
        def hook(module, args, output):
            # what goes into the ReLU; detached, we only look at it
            self.values[name] = output.detach().clone()
        return hook

    def summary(self):
        for name, v in self.values.items():
            neg = (v < 0).float().mean().item()
            print(f"{name:10s} mean {v.mean():+.3f} std {v.std():.3f} below zero {100 * neg:4.1f}%")

    def remove(self):
        for h in self.handles:
            h.remove()


def main():
    torch.manual_seed(0)
    model = SmallNet()
    images = torch.randn(64, 3, 12, 12)
    labels = torch.randint(0, 5, (64,))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(10):
        loss = nn.functional.cross_entropy(model(images), labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"training loss {loss.item():.3f}")
    probe = PreActivationProbe(model)
    model.eval()
    with torch.no_grad():
        model(images)
    probe.summary()
    probe.remove()


if __name__ == "__main__":
    main()
