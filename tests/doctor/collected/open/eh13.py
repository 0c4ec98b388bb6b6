"""Optimizer in the backward pass: each parameter is clipped, updated and freed as soon as its gradient is complete."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, dim), nn.Tanh(), nn.Linear(dim, dim), nn.Tanh())
        self.out = nn.Linear(dim, 1)

    def forward(self, x):
        return self.out(self.body(x)).squeeze(-1)


class FusedUpdates:
    def __init__(self, model, lr, max_norm, accumulate):
        self.max_norm = max_norm
        self.accumulate = accumulate
        self.micro = 0
        self.updates = 0
        self.optimizers = {p: torch.optim.Adam([p], lr=lr) for p in model.parameters()}
        self.handles = [p.register_post_accumulate_grad_hook(self.update) for p in model.parameters()]

    def begin_micro_batch(self):
        self.micro += 1

    def update(self, param):
        if self.micro % self.accumulate:
            return  # more micro batches to come, leave the sum in .grad
        param.grad.mul_(1.0 / self.accumulate)
        norm = param.grad.norm()
        if norm > self.max_norm:
            param.grad.mul_(self.max_norm / norm)
        self.optimizers[param].step()
        param.grad = None
        self.updates += 1


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    model = Net()
    fused = FusedUpdates(model, lr=5e-3, max_norm=0.5, accumulate=2)
    losses = []
    for i in range(240):
        x = torch.randn(32, 8, generator=gen)
        y = x[:, 0] * x[:, 1] + torch.sin(x[:, 2])
        fused.begin_micro_batch()
        loss = F.mse_loss(model(x), y)
        loss.backward()  # there is no optimizer.step() and no zero_grad()
        losses.append(loss.item())
        if i % 80 == 79:
            print(f"micro batch {i + 1}: loss {sum(losses[-20:]) / 20:.4f} updates {fused.updates}")
    print("gradients left:", [n for n, p in model.named_parameters() if p.grad is not None])
    for h in fused.handles:
        h.remove()


if __name__ == "__main__":
    main()
