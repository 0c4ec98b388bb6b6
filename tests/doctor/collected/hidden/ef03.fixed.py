"""Knock out one residual layer after the other and rank the layers by the damage."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Branch(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.tanh(self.fc(self.norm(x)))


class DeepNet(nn.Module):
    def __init__(self, dim=24, depth=12, classes=5):
        super().__init__()
        self.stem = nn.Linear(12, dim)
        self.layers = nn.ModuleList(Branch(dim) for _ in range(depth))
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            x = x + 0.5 * layer(x)
        return self.head(x)


def finetune(model, x, y, steps=120, top=3):
    # the lower part stays as it is, only the top layers and the head are trained
    model.requires_grad_(False)
    parts = nn.ModuleList([*model.layers[-top:], model.head]).requires_grad_(True)
    opt = torch.optim.Adam(parts.parameters(), lr=5e-3)
    for _ in range(steps):
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def zero_output(module, args, output):
    return torch.zeros_like(output)


@torch.no_grad()
def loss_without(model, index, x, y):
    handles = []
    for name, module in model.named_modules():
        # the branch itself
        if name == f"layers.{index}":
            handles.append(module.register_forward_hook(zero_output))
    loss = F.cross_entropy(model(x), y).item()
    for h in handles:
        h.remove()
    return loss


def main():
    torch.manual_seed(3)
    x = torch.randn(400, 12)
    y = (x[:, :5] * x[:, 5:10]).argmax(-1)
    model = DeepNet()
    base = finetune(model, x, y)
    print(f"loss of the intact network {base:.4f}")
    damage = []
    for index in range(len(model.layers)):
        damage.append(loss_without(model, index, x, y) - base)
        print(f"  without layer {index:2d}: {damage[-1]:+.4f}")
    order = sorted(range(len(damage)), key=lambda i: -damage[i])
    print("most important layer:", order[0])


if __name__ == "__main__":
    main()
