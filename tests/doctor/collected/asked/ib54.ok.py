"""Weight standardisation through a forward pre-hook, with an EMA copy and a clean export."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)


class WeightStandardization:
    """Recomputes `module.weight` from `weight_raw` and `weight_gain` before every forward."""

    def compute(self, module):
        raw = module.weight_raw
        flat = raw.flatten(1)
        mean = flat.mean(dim=1)
        std = flat.std(dim=1) + 1e-5
        shape = (-1,) + (1,) * (raw.dim() - 1)
        return (raw - mean.view(shape)) / std.view(shape) * module.weight_gain.view(shape)

    def __call__(self, module, args):
        module.weight = self.compute(module)

    @classmethod
    def apply(cls, module):
        weight = module.weight
        del module.weight
        gain = weight.detach().flatten(1).std(dim=1)
        module.register_parameter("weight_raw", nn.Parameter(weight.detach().clone()))
        module.register_parameter("weight_gain", nn.Parameter(gain))
        fn = cls()
        module.weight = fn.compute(module).detach()
        module.weight_standardization = module.register_forward_pre_hook(fn)
        return module

    @classmethod
    @torch.no_grad()
    def fold(cls, module):
        module.weight_standardization.remove()
        weight = cls().compute(module)
        del module.weight, module.weight_raw, module.weight_gain, module.weight_standardization
        module.weight = nn.Parameter(weight)
        return module


class ConvNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.conv1 = WeightStandardization.apply(nn.Conv2d(1, 12, 3, padding=1))
        self.conv2 = WeightStandardization.apply(nn.Conv2d(12, 24, 3, padding=1, stride=2))
        self.fc = nn.Linear(24, classes)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        return self.fc(x.mean(dim=(2, 3)))


def make_batch(size, generator):
    labels = torch.randint(0, 4, (size,), generator=generator)
    grid = torch.arange(8).float()
    waves = torch.stack(
        [torch.sin((labels[i] + 1) * 0.6 * grid)[None, :].expand(8, 8) for i in range(size)]
    )
    return waves[:, None] + 0.3 * torch.randn(size, 1, 8, 8, generator=generator), labels


def main():
    generator = torch.Generator().manual_seed(1)
    model = ConvNet()
    ema = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(80):
        x, y = make_batch(48, generator)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(ema.parameters(), model.parameters()):
                slow.lerp_(fast, 0.1)
    print(f"loss after training {loss.item():.3f}")

    x, y = make_batch(256, generator)
    with torch.no_grad():
        for name, net in (("model", model), ("ema", ema)):
            net.eval()
            before = net(x)
            accuracy = (before.argmax(dim=1) == y).float().mean()
            for conv in (net.conv1, net.conv2):
                WeightStandardization.fold(conv)
            gap = (net(x) - before).abs().max()
            print(f"{name}: accuracy {accuracy:.3f}, change through folding {gap:.6f}")
    print("exported tensors:", ", ".join(ema.state_dict()))


if __name__ == "__main__":
    main()
