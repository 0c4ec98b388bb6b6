"""Cross-validation of a sparse network: weights that were pruned must stay zero in every fold."""
import copy
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Settings:
    folds: int = 3
    epochs: int = 5
    sparsity: float = 0.5
    lr: float = 0.1


def masked(mask, grad):
    return grad * mask


def prune(model, sparsity):
    for module in model.modules():
        if isinstance(module, nn.Linear):
            threshold = module.weight.abs().flatten().quantile(sparsity)
            mask = (module.weight.abs() > threshold).float()
            module.weight.data.mul_(mask)
            module.weight.register_hook(partial(masked, mask))
    return model


def zero_fraction(model):
    weights = torch.cat([m.weight.flatten() for m in model.modules() if isinstance(m, nn.Linear)])
    return (weights == 0).float().mean().item()


class CrossValidator:
    def __init__(self, template, settings):
        self.template, self.settings = template, settings

    def fit_fold(self, x, y):
        model = copy.deepcopy(self.template)
        optimizer = torch.optim.SGD(model.parameters(), lr=self.settings.lr)
        for _ in range(self.settings.epochs):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        return model

    def run(self, x, y):
        for k, val in enumerate(torch.arange(len(x)).chunk(self.settings.folds)):
            train = torch.ones(len(x), dtype=torch.bool)
            train[val] = False
            model = self.fit_fold(x[train], y[train])
            accuracy = (model(x[val]).argmax(1) == y[val]).float().mean()
            print(f"fold {k}: accuracy {accuracy.item():.2f}, zero weights {zero_fraction(model):.2f}")


def main():
    torch.manual_seed(0)
    settings = Settings()
    template = prune(nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 2)), settings.sparsity)
    print(f"template: zero weights {zero_fraction(template):.2f}")
    x = torch.randn(90, 10)
    CrossValidator(template, settings).run(x, (x[:, 0] > 0).long())


if __name__ == "__main__":
    main()
