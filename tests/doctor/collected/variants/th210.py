"""Multi-task training with gradient surgery (PCGrad) on a shared trunk."""
import torch
import torch.nn.functional as F
from torch import nn


class MultiTaskNet(nn.Module):
    def __init__(self, tasks, dim=16):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(5, dim), nn.Tanh(), nn.Linear(dim, dim))
        self.heads = nn.ModuleDict({task: nn.Linear(dim, 1) for task in tasks})

    def forward(self, x):
        shared = torch.tanh(self.trunk(x))
        return {task: head(shared) for task, head in self.heads.items()}


class GradLimiter:
    """Limits every gradient as soon as it is complete."""

    def __init__(self, params, limit):
        self.limit, self.fired = limit, 0
        self.handles = [p.register_post_accumulate_grad_hook(self.limit_grad) for p in params]

    def limit_grad(self, param):
        self.fired += 1
        param.grad.clamp_(-self.limit, self.limit)


class PCGrad:
    def __init__(self, optimizer, params):
        self.optimizer, self.params = optimizer, list(params)

    def _flat_grad(self, loss):
        grads = torch.autograd.grad(loss, self.params, retain_graph=True, allow_unused=True)
        return torch.cat([torch.zeros_like(p).flatten() if g is None else g.flatten()
                          for p, g in zip(self.params, grads)])

    def step(self, losses):
        grads = [self._flat_grad(loss) for loss in losses]
        projected = [g.clone() for g in grads]
        for i, g in enumerate(projected):
            for j, other in enumerate(grads):
                if i != j and (dot := g @ other) < 0:
                    g.sub_(dot / other.norm().square() * other)
        total = sum(projected)
        for p, part in zip(self.params, total.split([p.numel() for p in self.params])):
            p.grad = part.view_as(p).clone()
        self.optimizer.step()


def main():
    torch.manual_seed(0)
    model = MultiTaskNet(["depth", "normal", "edge"])
    limiter = GradLimiter(model.parameters(), limit=0.01)
    pcgrad = PCGrad(torch.optim.SGD(model.parameters(), lr=0.1), model.parameters())
    x = torch.randn(64, 5)
    targets = {"depth": 4 * x[:, :1], "normal": -3 * x[:, :1], "edge": x[:, 1:2]}
    for step in range(5):
        out = model(x)
        pcgrad.step([F.mse_loss(out[task], targets[task]) for task in out])
        largest = max(p.grad.abs().max().item() for p in model.parameters())
        print(f"step {step}: limiter fired {limiter.fired} times, largest gradient {largest:.3f}")


if __name__ == "__main__":
    main()
