"""Train with small batches: watch the normalisation layers, then convert them for the batch size."""
from collections import defaultdict

import torch
import torch.nn.functional as F
from torch import nn


class ConvBlock(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(cout)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))


class ConvNet(nn.Module):
    def __init__(self, widths=(1, 8, 16)):
        super().__init__()
        self.blocks = nn.ModuleList(ConvBlock(a, b) for a, b in zip(widths, widths[1:]))
        self.fc = nn.Linear(widths[-1], 4)

    def forward(self, x):
        for block in self.blocks:
            x = F.max_pool2d(block(x), 2)
        return self.fc(x.mean((2, 3)))


class NormWatcher:
    def __init__(self, model):
        self.std, self.handles = defaultdict(list), {}
        for name, module in model.named_modules():
            if name.endswith("norm"):
                self.handles[name] = module.register_forward_hook(self.watch(name))

    def watch(self, name):
        return lambda module, args, output: self.std[name].append(output.detach().std())

    def table(self):
        return {name: len(self.std[name]) for name in self.handles}


def batchnorm_to_groupnorm(module, groups=4):
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(module, name, nn.GroupNorm(groups, child.num_features))
        else:
            batchnorm_to_groupnorm(child, groups)
    return module


def main(batch_size=4):
    torch.manual_seed(0)
    model = ConvNet()
    watcher = NormWatcher(model)
    if batch_size < 16:
        model = batchnorm_to_groupnorm(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(4):
        loss = F.cross_entropy(model(torch.randn(batch_size, 1, 12, 12)), torch.randint(0, 4, (batch_size,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("recorded values:", watcher.table())


if __name__ == "__main__":
    main()
