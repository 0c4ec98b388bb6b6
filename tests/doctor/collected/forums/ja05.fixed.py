"""Two parallel branches summed up; the gradient into the adapter branch is damped."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


class AdaptedBlock(nn.Module):
    def __init__(self, dim, damping):
        super().__init__()
        self.main = nn.Linear(dim, dim)
        self.adapter = nn.Linear(dim, dim)
        self.damping = damping

    def damp(self, grad):
        return grad * self.damping

    def forward(self, x):
        main = self.main(x)
        adapter = self.adapter(x)
        if adapter.requires_grad:
            adapter.register_hook(self.damp)
        return F.gelu(main + adapter)


class AdaptedNet(nn.Module):
    def __init__(self, dim=20, depth=2, classes=5, damping=1.0):
        super().__init__()
        self.blocks = nn.ModuleList([AdaptedBlock(dim, damping) for _ in range(depth)])
        self.out = nn.Linear(dim, classes)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def make_data(seed=0):
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(5, 20, generator=generator)
    labels = torch.randint(0, 5, (400,), generator=generator)
    return centers[labels] + torch.randn(400, 20, generator=generator), labels


def run(damping, epochs=8):
    torch.manual_seed(4)
    x, y = make_data()
    model = AdaptedNet(damping=damping)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    first_norm = None
    for epoch in range(epochs):
        for batch in torch.arange(len(x)).split(50):
            loss = F.cross_entropy(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            if first_norm is None:
                last_block = model.blocks[-1]
                first_norm = {
                    "main": last_block.main.weight.grad.norm().item(),
                    "adapter": last_block.adapter.weight.grad.norm().item(),
                }
            optimizer.step()

    with torch.no_grad():
        accuracy = (model(x).argmax(dim=1) == y).float().mean().item()
    return first_norm, accuracy


def main():
    reference, accuracy = run(damping=1.0)
    print(f"damping 1.00: accuracy {accuracy:.3f}")
    for damping in (0.5, 0.1):
        norms, accuracy = run(damping=damping)
        adapter = norms["adapter"] / reference["adapter"]
        main_branch = norms["main"] / reference["main"]
        print(f"damping {damping:.2f}: accuracy {accuracy:.3f}  "
              f"adapter gradient x{adapter:.2f}  main gradient x{main_branch:.2f}")


if __name__ == "__main__":
    main()
