"""Training with centralised gradients and a probe that measures the sharpness of the loss."""
import torch
import torch.nn.functional as F
from torch import nn


def centralize(grad):
    return grad - grad.mean(dim=tuple(range(1, grad.dim())), keepdim=True)


class SharpnessProbe:
    """Norm of the gradient at a slightly perturbed point."""

    def __init__(self, model, radius=0.01):
        self.model, self.radius = model, radius

    def measure(self, x, y):
        params = list(self.model.parameters())
        noise = [self.radius * torch.randn_like(p) for p in params]
        torch._foreach_add_([p.data for p in params], noise)
        grads = torch.autograd.grad(F.cross_entropy(self.model(x), y), params)
        torch._foreach_sub_([p.data for p in params], noise)
        self.model.zero_grad(set_to_none=True)
        return torch.stack([g.norm() for g in grads]).norm().item()


class Trainer:
    def __init__(self, model, lr=0.2):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        self.probe = SharpnessProbe(model)
        self.handles = [p.register_hook(centralize) for p in model.parameters() if p.dim() > 1]

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        sharpness = self.probe.measure(x, y)
        self.optimizer.step()
        return loss.item(), sharpness


def main():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv1d(2, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(32, 3)
    )
    trainer = Trainer(model)
    before = [p.detach().clone() for p in model.parameters()]
    x, y = torch.randn(48, 2, 16), torch.randint(0, 3, (48,))
    for step in range(6):
        loss, sharpness = trainer.step(x, y)
        print(f"step {step} loss {loss:.4f} sharpness {sharpness:.3f}")
    moved = sum((p - q).norm().item() for p, q in zip(model.parameters(), before))
    print(f"weights moved by {moved:.4f}")


if __name__ == "__main__":
    main()
