"""Mean-ablation of hidden neurons: replace one neuron by its average and measure the loss."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class MLP(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        self.fc1 = nn.Linear(8, width)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(width, 3)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


def train(model, x, y, steps=150):
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()


@torch.no_grad()
def mean_activation(model, x):
    seen = []
    handle = model.act.register_forward_hook(lambda mod, args, out: seen.append(out))
    model(x)
    handle.remove()
    return seen[0].mean(0)


def ablate(neuron, value):
    def hook(module, args, output):
        # the neuron is kept at its average for all inputs
        output = output.clone()
        output[:, neuron] = value
        return output
    return hook


@torch.no_grad()
def importance(model, x, y):
    means = mean_activation(model, x)
    base = F.cross_entropy(model(x), y).item()
    result = []
    for neuron in range(model.fc1.out_features):
        handle = model.act.register_forward_hook(ablate(neuron, means[neuron]))
        result.append(F.cross_entropy(model(x), y).item() - base)
        handle.remove()
    return base, result


def main():
    torch.manual_seed(0)
    x = torch.randn(400, 8)
    y = (x[:, :3] ** 2).argmax(-1)
    model = MLP()
    train(model, x, y)
    base, delta = importance(model, x, y)
    print(f"loss {base:.4f}")
    order = sorted(range(len(delta)), key=lambda n: -delta[n])
    for n in order[:5]:
        print(f"  neuron {n:2d}: {delta[n]:+.4f}")
    removable = sum(abs(d) < 1e-6 for d in delta)
    print(f"neurons without any influence: {removable} of {len(delta)}")


if __name__ == "__main__":
    main()
