"""Temporal convolutional network on the adding problem."""
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import weight_norm

warnings.filterwarnings("ignore", category=FutureWarning)
torch.manual_seed(0)
torch.set_num_threads(1)


class TemporalBlock(nn.Module):
    def __init__(self, cin, cout, kernel, dilation, init_std=0.01):
        super().__init__()
        self.pad = (kernel - 1) * dilation
        self.conv1 = weight_norm(nn.Conv1d(cin, cout, kernel, dilation=dilation))
        self.conv2 = weight_norm(nn.Conv1d(cout, cout, kernel, dilation=dilation))
        self.downsample = nn.Conv1d(cin, cout, 1) if cin != cout else nn.Identity()
        self.init_weights(init_std)

    def init_weights(self, std):
        self.conv1.weight.data.normal_(0, std)
        self.conv2.weight.data.normal_(0, std)

    def forward(self, x):
        out = F.relu(self.conv1(F.pad(x, (self.pad, 0))))
        out = F.relu(self.conv2(F.pad(out, (self.pad, 0))))
        return F.relu(out + self.downsample(x))


class TCN(nn.Module):
    def __init__(self, channels=(16, 16, 16), kernel=3):
        super().__init__()
        blocks = []
        cin = 2
        for level, cout in enumerate(channels):
            blocks.append(TemporalBlock(cin, cout, kernel, dilation=2**level))
            cin = cout
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(cin, 1)

    def forward(self, x):
        return self.head(self.blocks(x)[:, :, -1]).squeeze(-1)


def adding_problem(count, length=16):
    values = torch.rand(count, length)
    marks = torch.zeros(count, length)
    for row in marks:
        row[torch.randperm(length)[:2]] = 1
    target = (values * marks).sum(dim=1)
    return torch.stack([values, marks], dim=1), target


@torch.no_grad()
def weight_std(model, x):
    """Spread of the convolution weights that a forward pass uses."""
    model(x)
    weights = [conv.weight.flatten() for b in model.blocks for conv in (b.conv1, b.conv2)]
    return torch.cat(weights).std().item()


def main():
    model = TCN()
    x, y = adding_problem(512)
    std = weight_std(model, x[:32])
    print(f"std of the convolution weights before training: {std:.3f}")

    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(6):
        total = 0.0
        for xb, yb in zip(x.split(64), y.split(64)):
            loss = F.mse_loss(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(xb)
        print(f"epoch {epoch}: mse {total / len(x):.4f}")


if __name__ == "__main__":
    main()
