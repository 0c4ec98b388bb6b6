"""Noise-regularised training; the averaged copy is what goes into production."""
import copy

import torch
from torch import nn

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(4, 32)
        self.fc2 = nn.Linear(32, 32)
        self.fc3 = nn.Linear(32, 1)

    def forward(self, x):
        return self.fc3(torch.tanh(self.fc2(torch.tanh(self.fc1(x)))))


def add_noise(module, args, out):
    return out + 0.3 * torch.randn_like(out)


def install_noise(model):
    return [layer.register_forward_hook(add_noise) for layer in (model.fc1, model.fc2)]


@torch.no_grad()
def update_average(avg, model, decay=0.95):
    for a, p in zip(avg.parameters(), model.parameters()):
        a.lerp_(p, 1 - decay)


def train(model, avg, x, y, steps=80):
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        opt.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        opt.step()
        update_average(avg, model)


@torch.no_grad()
def evaluate(model, x, y):
    return nn.functional.mse_loss(model.eval()(x), y).item()


def main():
    torch.manual_seed(0)
    x = torch.rand(100, 4) * 2 - 1
    y = (x[:, :1] * x[:, 1:2]) + 0.5 * x[:, 2:3]
    model = Net()
    avg = copy.deepcopy(model).requires_grad_(False)
    handles = install_noise(model)

    train(model, avg, x, y)
    for h in handles:                  # the noise was for training only
        h.remove()

    print(f"trained model: error {evaluate(model, x, y):.4f}")
    first, second = evaluate(avg, x, y), evaluate(avg, x, y)
    print(f"averaged model: error {first:.4f}, again {second:.4f}")
    print("repeatable:", first == second)


if __name__ == "__main__":
    main()
