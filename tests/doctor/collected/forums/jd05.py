"""Reads checkpoints of the previous release, whose layers had other names."""
import torch
import torch.nn as nn

torch.manual_seed(0)
torch.set_num_threads(1)

RENAMED = {"encoder.lin_in.": "body.0.", "encoder.lin_out.": "body.2.", "fc.": "head."}


class OldNet(nn.Module):
    def __init__(self, dim=10, hidden=32, classes=3):
        super().__init__()
        self.encoder = nn.ModuleDict({"lin_in": nn.Linear(dim, hidden),
                                      "lin_out": nn.Linear(hidden, hidden)})
        self.fc = nn.Linear(hidden, classes)

    def forward(self, x):
        x = self.encoder["lin_in"](x).relu()
        return self.fc(self.encoder["lin_out"](x).relu())


def upgrade_keys(module, state_dict, prefix, local_metadata, strict,
                 missing_keys, unexpected_keys, error_msgs):
    upgraded = {}
    for key, value in state_dict.items():
        for old, new in RENAMED.items():
            if key.startswith(prefix + old):
                key = prefix + new + key[len(prefix + old):]
        upgraded[key] = value
    return upgraded


class Net(nn.Module):
    def __init__(self, dim=10, hidden=32, classes=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(),
                                  nn.Linear(hidden, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, classes)
        self.uncertainty = nn.Linear(hidden, 1)
        self.register_load_state_dict_pre_hook(upgrade_keys)

    def forward(self, x):
        return self.head(self.body(x))


def make_data(n=600):
    centers = torch.randn(3, 10) * 1.5
    labels = torch.randint(0, 3, (n,))
    return centers[labels] + torch.randn(n, 10), labels


def train(model, x, y, steps=80):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def accuracy(model, x, y):
    return (model(x).argmax(dim=1) == y).float().mean().item()


def main():
    x, y = make_data()
    old = OldNet()
    train(old, x[:400], y[:400])
    checkpoint = {"model": old.state_dict(), "version": 1}
    before = accuracy(old, x[400:], y[400:])

    model = Net()
    model.load_state_dict(checkpoint["model"], strict=False)  # uncertainty head is new
    after = accuracy(model, x[400:], y[400:])
    print(f"accuracy of the old model: {before:.3f}")
    print(f"accuracy after loading:    {after:.3f}")
    print("checkpoint " + ("reproduced" if abs(before - after) < 0.01 else "not reproduced"))


if __name__ == "__main__":
    main()
