"""Data-parallel training emulated in one process: several shards, averaged gradients."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(6)
torch.set_num_threads(1)


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(10, 48), nn.Tanh(),
            nn.Linear(48, 48), nn.Tanh(),
            nn.Linear(48, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(-1)


class ShardedModel:
    """Sums the losses of all shards and averages the gradients afterwards."""

    def __init__(self, module, num_shards):
        self.module = module
        self.num_shards = num_shards
        for p in module.parameters():
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(self._average)

    def _average(self, grad):
        grad.div_(self.num_shards)

    def backward(self, x, y):
        losses = [
            F.mse_loss(self.module(xs), ys)
            for xs, ys in zip(x.chunk(self.num_shards), y.chunk(self.num_shards))
        ]
        sum(losses).backward()
        return sum(l.item() for l in losses) / self.num_shards


def weight_norm(module):
    with torch.no_grad():
        return torch.cat([p.flatten() for p in module.parameters()]).norm().item()


def main():
    x = torch.randn(512, 10)
    y = torch.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2]

    module = Regressor()
    sharded = ShardedModel(module, num_shards=4)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    start = weight_norm(module)

    for epoch in range(10):
        total, batches = 0.0, torch.randperm(len(x)).split(64)
        for batch in batches:
            optimizer.zero_grad()
            total += sharded.backward(x[batch], y[batch])
            optimizer.step()
        if epoch % 3 == 0:
            print(f"epoch {epoch}: loss {total / len(batches):.4f}")

    end = weight_norm(module)
    print(f"parameter norm {start:.2f} -> {end:.2f}")
    print("weights collapsed" if end < 0.3 * start else "weights fine")


if __name__ == "__main__":
    main()
