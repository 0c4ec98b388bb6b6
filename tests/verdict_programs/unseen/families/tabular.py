"""Tabular regression: embeddings of categories and an MLP, SGD with momentum, mean squared error."""
import copy
import json
import os

import torch
from torch import nn

torch.set_num_threads(1)
FAULT = json.loads(os.environ.get("FAULT", "{}"))
KIND, STEP, LAYER = FAULT.get("kind", ""), FAULT.get("step", 0), FAULT.get("layer", "")
torch.manual_seed(FAULT.get("seed", 0))
CARDINALITY = (7, 12, 4)


class Unit(nn.Module):
    def __init__(self, a, b, act):
        super().__init__()
        self.dense, self.act, self.fault = nn.Linear(a, b), act, ""

    def forward(self, x):
        h = self.dense(x)
        if self.fault == "fwd_log":
            h = h * torch.log2(h)
        if self.fault == "bwd_where":
            size = (h * (h > 0)).pow(2).sqrt()
            h = torch.where(h > 0, size, h)
        return self.act(h)


class Table(nn.Module):
    def __init__(self, depth, width, act):
        super().__init__()
        self.categories = nn.ModuleList([nn.Embedding(c, 6) for c in CARDINALITY])
        self.units = nn.Sequential(*[Unit(24 if i == 0 else width, width, act) for i in range(depth)])
        self.target = nn.Linear(width, 1)

    def forward(self, codes, numbers):
        parts = [e(codes[:, i]) for i, e in enumerate(self.categories)]
        return self.target(self.units(torch.cat([*parts, numbers], 1))).squeeze(1)


def rows(n, effect):
    codes = torch.stack([torch.randint(c, (n,)) for c in CARDINALITY], 1)
    numbers = torch.randn(n, 6)
    y = effect[codes[:, 1]] + numbers[:, 0] * effect[codes[:, 0]] + numbers[:, 1].abs()
    return codes, numbers, y


def main():
    effect = torch.randn(12)
    deep = KIND == "sigmoid_stack"
    model = Table(9 if deep else 5, 40, nn.Sigmoid() if deep else nn.ReLU())
    for m in model.units:
        if not deep:
            nn.init.kaiming_normal_(m.dense.weight, nonlinearity="relu")
    if KIND == "dead_bias":
        with torch.no_grad():
            model.get_submodule(LAYER).dense.bias -= 1000.0
    trained = copy.deepcopy(model) if KIND == "wrong_model" else model
    lr = 5e-4 if KIND == "maximize" else 0.02
    sgd = torch.optim.SGD(trained.parameters(), lr=lr, momentum=0.9, weight_decay=1e-4, maximize=KIND == "maximize")
    decay = torch.optim.lr_scheduler.StepLR(sgd, 70, gamma=0.5)
    for step in range(200):
        codes, numbers, y = rows(100, effect)
        if step == STEP:
            match KIND:
                case "data_nan":
                    numbers[42, 5] = float("nan")
                case "batch_scale":
                    numbers = numbers * 6
                case "fwd_log" | "bwd_where":
                    model.get_submodule(LAYER).fault = KIND
                case "param_nan":
                    model.get_parameter(LAYER).data.div_(0).mul_(0)
        prediction = model(codes, numbers)
        error = (prediction - y).square()
        if KIND == "loss_log" and step == STEP:
            error = (torch.log(prediction - prediction.detach().max()) - y).square()
        loss = error.mean()
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        decay.step()
        if step % 50 == 0 or step == 199:
            print(f"step={step} mse={loss.item():.4f}")


if __name__ == "__main__":
    main()
