"""Toy federated averaging with a meter that counts the work done by all clients."""
import copy

import torch
from torch import nn

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 2)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


class WorkMeter:
    """Counts the rows that pass through a model and the share of active units."""

    def __init__(self):
        self.rows = 0
        self.active = 0.0

    def attach(self, model):
        model.fc1.register_forward_hook(self.on_forward)

    def on_forward(self, module, args, out):
        self.rows += out.shape[0]
        self.active += (out > 0).float().mean(dim=1).sum().item()

    def report(self):
        share = self.active / max(self.rows, 1)
        return f"rows {self.rows}, active share {share:.3f}"


def local_training(model, x, y, steps=3):
    opt = torch.optim.SGD(model.parameters(), lr=0.2)
    for _ in range(steps):
        opt.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        opt.step()
    return model.state_dict()


def average(states):
    return {k: torch.stack([s[k] for s in states]).mean(dim=0) for k in states[0]}


def main():
    torch.manual_seed(0)
    server = Net()
    meter = WorkMeter()

    clients = [(torch.randn(20, 8) + c, torch.randint(0, 2, (20,))) for c in range(3)]
    for round_no in range(2):
        states = []
        for x, y in clients:
            client = copy.deepcopy(server)
            meter.attach(client)
            states.append(local_training(client, x, y))
        server.load_state_dict(average(states))
        print(f"round {round_no}: {meter.report()}")

    expected = 2 * 3 * 3 * 20
    print("billing: clients processed", meter.rows, "rows; the plan allows", expected)


if __name__ == "__main__":
    main()
