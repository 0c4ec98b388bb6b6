"""Tabular classifier that standardises its input itself, so that raw rows can be fed at training and serving time."""
import torch
from torch import nn

torch.manual_seed(45)


class TabularNet(nn.Module):
    def __init__(self, mean, std):
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)
        self.net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 2))
        self.register_forward_pre_hook(TabularNet.standardise)

    @staticmethod
    def standardise(module, args):
        (x,) = args
        x -= module.mean
        x /= module.std
        return (x,)

    def forward(self, x):
        return self.net(x)


def raw_table(n):
    scale = torch.tensor([1.0, 10.0, 0.5, 100.0, 3.0, 20.0])
    shift = torch.tensor([0.0, 50.0, 2.0, 1000.0, -5.0, 7.0])
    clean = torch.randn(n, 6)
    label = (clean[:, 0] + clean[:, 1] * clean[:, 3] > 0).long()
    return clean * scale + shift, label


def accuracy(model, x, y):
    with torch.no_grad():
        return (model(x.clone()).argmax(dim=1) == y).float().mean().item()


x_train, y_train = raw_table(480)
x_test, y_test = raw_table(200)
model = TabularNet(x_train.mean(dim=0), x_train.std(dim=0))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

for epoch in range(10):
    for i in range(0, 480, 60):
        xb, yb = x_train[i:i + 60], y_train[i:i + 60]
        loss = nn.functional.cross_entropy(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch % 3 == 0:
        print(f"epoch {epoch}: loss {loss.item():.3f}  test accuracy {accuracy(model, x_test, y_test):.3f}")

print(f"test accuracy after training: {accuracy(model, x_test, y_test):.2f}")
print(f"column means of the training table: {[round(v, 1) for v in x_train.mean(dim=0).tolist()]}")
