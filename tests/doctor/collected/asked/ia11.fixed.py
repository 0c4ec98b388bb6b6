"""Deep residual MLP; the gradient entering each branch is damped, the skip path is not."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(10)
torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self, dim, damping):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, dim)
        self.fc2 = nn.Linear(dim, dim)
        self.damping = damping

    def damp(self, grad):
        return grad * self.damping

    def forward(self, x):
        branch = self.fc2(F.gelu(self.fc1(self.norm(x))))
        if branch.requires_grad:
            branch.register_hook(self.damp)
        return x + branch


class ResNetMLP(nn.Module):
    def __init__(self, dim=32, depth=6, damping=0.2):
        super().__init__()
        self.stem = nn.Linear(12, dim)
        self.blocks = nn.ModuleList([Block(dim, damping) for _ in range(depth)])
        self.head = nn.Linear(dim, 3)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def grad_norm(module):
    return torch.cat([p.grad.flatten() for p in module.parameters()]).norm().item()


def main():
    x = torch.randn(384, 12)
    y = (x[:, :3] * x[:, 3:6]).argmax(dim=1)
    model = ResNetMLP()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    first_norms = None
    for epoch in range(12):
        total = 0.0
        for batch in torch.randperm(len(x)).split(48):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[batch]), y[batch])
            loss.backward()
            if first_norms is None:
                first_norms = grad_norm(model.stem), grad_norm(model.head)
            optimizer.step()
            total += loss.item() * len(batch)
        if epoch % 4 == 3:
            print(f"epoch {epoch}: loss {total / len(x):.4f}")

    stem, head = first_norms
    with torch.no_grad():
        accuracy = (model(x).argmax(dim=1) == y).float().mean().item()
    print(f"train accuracy {accuracy:.3f}")
    print(f"first step: stem gradient / head gradient = {stem / head:.4f}")


if __name__ == "__main__":
    main()
