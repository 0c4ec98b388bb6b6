"""Sparse demand model: prune, save the whole model, resume later on newer data."""
import os
import tempfile

import torch
from torch import nn
import torch.nn.functional as F


class DemandNet(nn.Module):
    def __init__(self, inputs=16, width=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
        )

    def forward(self, x):
        return self.net(x).squeeze(-1)


def matrices(model):
    return [param for param in model.parameters() if param.dim() == 2]


def hold_zeros(model):
    """Weights that are zero receive no gradient and therefore stay zero."""
    for weight in matrices(model):
        mask = (weight.detach() != 0).float()
        weight.register_hook(lambda grad, mask=mask: grad * mask)


@torch.no_grad()
def prune(model, share):
    for weight in matrices(model):
        limit = weight.abs().flatten().kthvalue(int(share * weight.numel())).values
        weight[weight.abs() <= limit] = 0.0


def sparsity(model):
    zeros = sum((weight == 0).sum().item() for weight in matrices(model))
    return zeros / sum(weight.numel() for weight in matrices(model))


def make_demand(count, shift=0.0):
    x = torch.randn(count, 16)
    y = x[:, 0] + torch.relu(x[:, 1] + shift) - 0.5 * x[:, 2] * x[:, 3]
    return x, y + 0.1 * torch.randn(count)


def fit(model, x, y, epochs, lr=0.05):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(50):
            loss = F.mse_loss(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return loss.item()


def first_season(path):
    x, y = make_demand(1500)
    model = DemandNet()
    print(f"dense training, last loss {fit(model, x, y, epochs=6):.4f}")
    prune(model, share=0.7)
    hold_zeros(model)
    print(f"after pruning: sparsity {sparsity(model):.2f}")
    print(f"recovery, last loss {fit(model, x, y, epochs=4):.4f}")
    print(f"at the end of the first season: sparsity {sparsity(model):.2f}")
    torch.save(model, path)


def second_season(path):
    model = torch.load(path, weights_only=False)
    hold_zeros(model)
    x, y = make_demand(1500, shift=0.4)
    print(f"update on the second season, last loss {fit(model, x, y, epochs=4):.4f}")
    print(f"at the end of the second season: sparsity {sparsity(model):.2f}")


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "demand.pt")
        first_season(path)
        second_season(path)


if __name__ == "__main__":
    main()
