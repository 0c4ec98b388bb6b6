"""Fine tuning with parameter groups: a frozen stem, a slow backbone and a fast head."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="")
args = parser.parse_args()
plant = args.plant
torch.manual_seed(61)


class CarefulAdam(torch.optim.Adam):
    """Adam that does nothing if it is told to skip a step."""

    skip = False

    def step(self, closure=None):
        if self.skip:
            return None
        return super().step(closure)


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(10, 24)
        self.hidden1 = nn.Linear(24, 24)
        self.hidden2 = nn.Linear(24, 24)

    def forward(self, x):
        x = torch.tanh(self.stem(x))
        x = torch.tanh(self.hidden1(x))
        return torch.tanh(self.hidden2(x))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 6))
        self.backbone = Backbone()

    def forward(self, x):
        return self.head(self.backbone(x))


model = Classifier()
model.backbone.stem.requires_grad_(False)
slow = [p for p in model.backbone.parameters() if p.requires_grad]
optimizer = CarefulAdam(
    [{"params": slow, "lr": 1e-3, "weight_decay": 1e-2}, {"params": model.head.parameters(), "lr": 1e-2}]
)
g = torch.Generator().manual_seed(62)
for step in range(8):
    x = torch.randn(20, 10, generator=g)
    y = x[:, :6].argmax(1)
    if plant == "frozen" and step == 4:
        model.backbone.stem.weight.data[0, 0] += 1e-3
    if plant == "head-lr" and step >= 3:
        optimizer.param_groups[1]["lr"] = 1.1e-2
    if plant == "slow-decay" and step >= 2:
        optimizer.param_groups[0]["weight_decay"] = 2e-2
    if plant == "eps" and step >= 5:
        for group in optimizer.param_groups:
            group["eps"] = 1e-6
    if plant == "moment" and step == 4:
        optimizer.state[model.backbone.hidden2.weight]["exp_avg"].mul_(1.01)
    optimizer.skip = plant == "skip-inside" and step == 3
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    if plant == "skip" and step == 3:
        print("step is skipped")
        continue
    optimizer.step()
    print(step, loss.item())
