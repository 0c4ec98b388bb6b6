"""Fine-tune a pretrained CNN with its middle stage held constant.

The stem and the head adapt to the shifted images; the middle stage is kept as it is by
stopping its gradients in the backward pass.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(15)
torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self, width=12, classes=4):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.middle = nn.Conv2d(width, width, 3, padding=1)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = F.max_pool2d(F.silu(self.stem(x)), 2)
        x = F.silu(self.middle(x))
        return self.head(x.mean((2, 3)))


def make_data(n, seed, frequency):
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    waves = torch.stack([xx, yy, 0.7 * (xx + yy), 0.7 * (xx - yy)])
    y = torch.randint(0, 4, (n,), generator=g)
    phase = torch.rand(n, 1, 1, generator=g) * 6.28
    x = torch.sin(frequency * waves[y] + phase) + 0.2 * torch.randn(n, 12, 12, generator=g)
    return x.unsqueeze(1), y


def train(model, x, y, steps, lr):
    opt = torch.optim.Adam(model.parameters(), lr=lr)
    for step in range(steps):
        idx = torch.arange(step * 64, step * 64 + 64) % len(x)
        loss = F.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def hold_constant(layer):
    return [p.register_hook(torch.zeros_like) for p in layer.parameters()]


def relative_change(model, before):
    out = {}
    for name in ("stem", "middle", "head"):
        new = model.get_submodule(name).weight.detach()
        old = before[name + ".weight"]
        out[name] = ((new - old).norm() / old.norm()).item()
    return out


def main():
    model = Net()
    x, y = make_data(512, seed=1, frequency=1.5)
    loss = train(model, x, y, steps=80, lr=0.01)
    print(f"pretraining: loss {loss:.4f}")

    before = {k: v.clone() for k, v in model.state_dict().items()}
    handles = hold_constant(model.middle)
    xs, ys = make_data(256, seed=2, frequency=1.0)
    loss = train(model, xs, ys, steps=40, lr=0.005)
    for handle in handles:
        handle.remove()

    with torch.no_grad():
        acc = (model(xs).argmax(1) == ys).float().mean().item()
    print(f"fine-tuning: loss {loss:.4f} accuracy {acc:.3f}")
    change = relative_change(model, before)
    print("relative change:", ", ".join(f"{k} {v:.4f}" for k, v in change.items()))


if __name__ == "__main__":
    main()
