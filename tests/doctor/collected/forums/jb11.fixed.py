"""Dynamic magnitude pruning with feedback: the mask is renewed regularly, pruned weights may come back."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(10)
torch.set_num_threads(1)

SPARSITY = 0.7


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(20, 40)
        self.fc2 = nn.Linear(40, 40)
        self.out = nn.Linear(40, 4)

    def forward(self, x):
        x = torch.relu(self.fc1(x))
        x = torch.relu(self.fc2(x))
        return self.out(x)


class DynamicPruner:
    def __init__(self, layers):
        self.layers = layers
        for layer in layers:
            layer.register_buffer("mask", torch.ones_like(layer.weight))
            layer.register_parameter("dense", nn.Parameter(layer.weight.detach().clone()))
            del layer.weight
            layer.register_forward_pre_hook(self.apply_mask)

    @staticmethod
    def apply_mask(module, args):
        dense = module.dense
        module.weight = dense + (dense * module.mask - dense).detach()

    @torch.no_grad()
    def update_masks(self):
        changed = 0
        for layer in self.layers:
            magnitude = layer.dense.abs()
            k = int(SPARSITY * magnitude.numel())
            threshold = magnitude.flatten().kthvalue(k).values
            mask = (magnitude > threshold).float()
            changed += int(((mask == 1) & (layer.mask == 0)).sum())
            layer.mask.copy_(mask)
        return changed


def make_data(n=1000):
    teacher = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 4)).requires_grad_(False)
    for p in teacher.parameters():
        p.mul_(2.0)
    x = torch.randn(n, 20)
    return x, teacher(x).argmax(dim=1)


def main():
    x, y = make_data()
    model = Net()
    pruner = DynamicPruner([model.fc1, model.fc2])
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    returned = 0
    for epoch in range(12):
        order = torch.randperm(len(x))
        total = 0.0
        for batch in order.split(100):
            loss = F.cross_entropy(model(x[batch]), y[batch])
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() / 10
        came_back = pruner.update_masks()
        if epoch > 0:
            returned += came_back
        print(f"epoch {epoch:2d} loss {total:.4f}")

    with torch.no_grad():
        acc = (model(x).argmax(1) == y).float().mean().item()
    kept = sum(int(layer.mask.sum()) for layer in pruner.layers)
    size = sum(layer.mask.numel() for layer in pruner.layers)
    print(f"kept weights {kept}/{size}  accuracy {acc:.3f}")
    print(f"weights that came back after pruning: {returned}")


if __name__ == "__main__":
    main()
