"""Layer-wise gradient scaling with lambdas that bind the factor, and a log that sees the unscaled gradient."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self, dim=24, depth=4):
        super().__init__()
        self.inp = nn.Linear(10, dim)
        self.blocks = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        self.head = nn.Linear(dim, 3)

    def forward(self, x):
        x = torch.tanh(self.inp(x))
        for b in self.blocks:
            x = x + torch.tanh(b(x))
        return self.head(x)


def attach(model, decay):
    raw = {}
    handles = []
    depth = len(model.blocks)
    for i, block in enumerate(model.blocks):
        factor = decay ** (depth - i)
        for name, p in block.named_parameters():
            key = f"blocks.{i}.{name}"
            # first the log (returns None from update), then the scaling
            handles.append(p.register_hook(lambda g, key=key: raw.update({key: g.norm().item()})))
            handles.append(p.register_hook(lambda g, factor=factor: g * factor))
    return raw, handles


def main():
    torch.manual_seed(0)
    x = torch.randn(256, 10)
    y = (x[:, :3] - x[:, 3:6]).argmax(-1)
    model = Net()
    F.cross_entropy(model(x), y).backward()
    plain = {n: p.grad.norm().item() for n, p in model.named_parameters()}
    raw, handles = attach(model, decay=0.7)
    model.zero_grad()
    F.cross_entropy(model(x), y).backward()
    for name, p in model.named_parameters():
        if name in raw:
            print(f"{name:16s} plain {plain[name]:.4f} logged {raw[name]:.4f} factor {p.grad.norm().item() / plain[name]:.4f}")
    opt = torch.optim.SGD(model.parameters(), lr=0.3)
    for step in range(50):
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"loss {loss.item():.4f}")
    for h in handles:
        h.remove()
    model.zero_grad()
    raw.clear()
    F.cross_entropy(model(x), y).backward()
    print("log after removal:", raw)


if __name__ == "__main__":
    main()
