"""Temporal convolution network with weight normalisation and a small-variance initialisation."""
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import weight_norm

warnings.filterwarnings("ignore", category=FutureWarning)
torch.manual_seed(14)
torch.set_num_threads(1)

INIT_STD = 0.01


def init_weights(conv):
    conv.weight.data.normal_(0.0, INIT_STD)
    return conv


class TemporalBlock(nn.Module):
    def __init__(self, cin, cout, kernel, dilation):
        super().__init__()
        self.pad = (kernel - 1) * dilation
        self.conv1 = weight_norm(init_weights(nn.Conv1d(cin, cout, kernel, dilation=dilation)))
        self.conv2 = weight_norm(init_weights(nn.Conv1d(cout, cout, kernel, dilation=dilation)))
        self.skip = nn.Conv1d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x):
        h = torch.relu(self.conv1(F.pad(x, (self.pad, 0))))
        h = torch.relu(self.conv2(F.pad(h, (self.pad, 0))))
        return h + self.skip(x)


class TCN(nn.Module):
    def __init__(self, channels=(12, 12, 12), kernel=3):
        super().__init__()
        sizes = (2,) + tuple(channels)
        self.blocks = nn.Sequential(*[
            TemporalBlock(sizes[i], sizes[i + 1], kernel, 2 ** i) for i in range(len(channels))
        ])
        self.head = nn.Linear(channels[-1], 1)

    def forward(self, x):
        return self.head(self.blocks(x)[..., -1])


def adding_problem(n, length=24):
    values = torch.rand(n, 1, length)
    marks = torch.zeros(n, 1, length)
    for i in range(n):
        a, b = torch.randperm(length)[:2].tolist()
        marks[i, 0, [a, b]] = 1.0
    target = (values * marks).sum(-1)
    return torch.cat([values, marks], dim=1), target


def report_weights(model):
    for index, block in enumerate(model.blocks):
        stds = [conv.weight.std().item() for conv in (block.conv1, block.conv2)]
        print(f"block {index}: weight std {stds[0]:.3f} {stds[1]:.3f}  (initialised with {INIT_STD})")


def main():
    model = TCN()
    x, y = adding_problem(256)
    with torch.no_grad():
        out = model(x)
    print(f"output std before training {out.std().item():.4f}")
    report_weights(model)

    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    for epoch in range(8):
        for i in range(0, len(x), 64):
            loss = F.mse_loss(model(x[i:i + 64]), y[i:i + 64])
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
