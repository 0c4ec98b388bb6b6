"""Dead-unit statistics for a network with one shared ReLU: the hook counts the calls of a forward pass."""
import torch
import torch.nn as nn


class Net(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.fc1 = nn.Linear(8, width)
        self.fc2 = nn.Linear(width, width)
        self.fc3 = nn.Linear(width, 2)
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.fc3(self.relu(self.fc2(self.relu(self.fc1(x)))))


class PerCallStats:
    """Keys are (module name, number of the call within the current forward pass)."""

    def __init__(self, model, kind):
        self.alive = {}
        self.counter = {}
        self.handles = [model.register_forward_pre_hook(self.restart)]
        for name, module in model.named_modules():
            if isinstance(module, kind):
                self.handles.append(module.register_forward_hook(self.make(name)))

    def restart(self, module, args):
        self.counter = {}

    def make(self, name):
        def hook(module, args, out):
            call = self.counter.get(name, 0)
            self.counter[name] = call + 1
            fired = (out > 0).any(0)
            key = (name, call)
            self.alive[key] = self.alive[key] | fired if key in self.alive else fired
        return hook

    def close(self):
        while self.handles:
            self.handles.pop().remove()


def main():
    torch.manual_seed(0)
    model = Net()
    with torch.no_grad():
        model.fc1.bias[:5] = -20.0
        model.fc2.bias[10:22] = -20.0
    x = torch.randn(400, 8)
    stats = PerCallStats(model, nn.ReLU)
    model.eval()
    with torch.no_grad():
        for batch in x.split(50):
            model(batch)
    for (name, call), mask in stats.alive.items():
        print(f"{name} call {call}: {int((~mask).sum())} of {mask.numel()} units dead")
    stats.close()
    with torch.no_grad():
        model(x)
    print("keys after the hooks are gone:", sorted(stats.alive))


if __name__ == "__main__":
    main()
