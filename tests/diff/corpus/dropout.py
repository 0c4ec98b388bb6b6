"""A tabular model with dropout, fed by a DataLoader."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="")
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--ahead", type=int, default=0, help="read this number of batches ahead")
args = parser.parse_args()
plant = args.plant


class TabularNet(nn.Module):
    def __init__(self, p=0.1):
        super().__init__()
        self.category = nn.Embedding(7, 4)
        self.block1 = nn.ModuleDict({"fc": nn.Linear(9, 32), "bn": nn.BatchNorm1d(32), "drop": nn.Dropout(0.1)})
        self.block2 = nn.ModuleDict({"fc": nn.Linear(32, 32), "bn": nn.BatchNorm1d(32), "drop": nn.Dropout(p)})
        self.final = nn.Linear(32, 1)

    def forward(self, numbers, category):
        x = torch.cat([numbers, self.category(category)], 1)
        for block in (self.block1, self.block2):
            x = block["drop"](torch.relu(block["bn"](block["fc"](x))))
        return self.final(x).squeeze(1)


def batches(loader):
    waiting = []
    for batch in loader:
        waiting.append(batch)
        if len(waiting) > args.ahead:
            yield waiting.pop(0)
    yield from waiting


def main():
    g = torch.Generator().manual_seed(71)
    numbers, category = torch.randn(128, 5, generator=g), torch.randint(0, 7, (128,), generator=g)
    target = numbers.sum(1) + category
    if plant == "row":
        numbers[40, 2] = 0.0
    if plant == "category":
        category[90] = (category[90] + 1) % 7
    torch.manual_seed(72)
    model = TabularNet(p=0.11 if plant == "p" else 0.1)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)
    shuffle = torch.Generator().manual_seed(74 if plant == "shuffle" else 73)
    dataset = TensorDataset(numbers, category, target)
    loader = DataLoader(dataset, 16, shuffle=True, generator=shuffle, num_workers=args.workers)
    model.train()
    for step, (n, c, t) in enumerate(batches(loader)):
        if plant == "dropout-seed" and step == 2:
            torch.manual_seed(5)
        if plant == "drop-eval" and step >= 3:
            model.block2["drop"].eval()
        loss = (model(n, c) - t).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())


if __name__ == "__main__":
    main()
