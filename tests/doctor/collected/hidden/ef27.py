"""All blocks of a deep network learn with the same reduced gradient (factor 0.5), the head with the full one."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        return torch.relu(self.norm(self.fc(x)))


class Net(nn.Module):
    def __init__(self, dim=24, depth=6):
        super().__init__()
        self.inp = nn.Linear(10, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.head = nn.Linear(dim, 4)

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def reduce_gradients(blocks, factor):
    handles = []
    for block in blocks:
        # the gradient that arrives at the block is multiplied before the block uses it
        handles.append(block.register_full_backward_pre_hook(
            lambda module, grad_output: tuple(factor * g for g in grad_output)))
    return handles


def weight_grads(model, x, y):
    model.zero_grad()
    F.cross_entropy(model(x), y).backward()
    return [b.fc.weight.grad.norm().item() for b in model.blocks] + [model.head.weight.grad.norm().item()]


def main():
    torch.manual_seed(0)
    x = torch.randn(256, 10)
    y = (x[:, :4] - x[:, 4:8]).argmax(-1)
    model = Net()
    normal = weight_grads(model, x, y)
    handles = reduce_gradients(model.blocks, 0.5)
    reduced = weight_grads(model, x, y)
    for i, (a, b) in enumerate(zip(normal, reduced)):
        label = f"block {i}" if i < len(model.blocks) else "head   "
        print(f"{label} gradient {a:.4f} -> {b:.4f} (x {b / a:.3f})")
    opt = torch.optim.SGD(model.parameters(), lr=0.2)
    for step in range(60):
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    for h in handles:
        h.remove()
    print(f"loss after 60 steps {loss.item():.4f}")


if __name__ == "__main__":
    main()
