"""Fine-tune with a gentle backbone: its gradients are scaled down, the head learns at full speed."""
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self, dim=32, depth=3):
        super().__init__()
        self.embed = nn.Linear(10, dim)
        self.blocks = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))

    def forward(self, x):
        x = torch.tanh(self.embed(x))
        for block in self.blocks:
            x = x + torch.tanh(block(x))
        return x


class Classifier(nn.Module):
    def __init__(self, encoder, classes=3):
        super().__init__()
        self.backbone = encoder
        self.head = nn.Linear(32, classes)

    def forward(self, x):
        return self.head(self.backbone(x))


def soften(model, groups):
    """groups: prefix -> factor for the gradients of all parameters below this prefix."""
    handles = []
    for prefix, factor in groups.items():
        for name, param in model.named_parameters():
            if name.startswith(prefix + "."):
                handles.append(param.register_hook(lambda g, f=factor: g * f))
    return handles


def movement(before, model, part):
    after = model.state_dict()
    return sum((after[k] - before[k]).norm().item() for k in before if part in k)


def main():
    torch.manual_seed(5)
    x = torch.randn(300, 10)
    y = (x[:, 0] + x[:, 1] ** 2 > 1).long() + (x[:, 2] > 0.8).long()
    model = Classifier(Encoder())
    # blocks move at 5% of the normal speed, the embedding hardly at all
    handles = soften(model, {"backbone.blocks": 0.05, "backbone.embed": 0.01})
    before = copy.deepcopy(model.state_dict())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(80):
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step:3d} loss {loss.item():.4f}")
    for h in handles:
        h.remove()
    moved = {part: movement(before, model, part) for part in ("embed", "blocks", "head")}
    for part, dist in moved.items():
        print(f"{part:7s} moved {dist:.3f}")
    print("backbone kept in place:", moved["blocks"] < 0.3 * moved["head"])


if __name__ == "__main__":
    main()
