"""Domain-adversarial training (DANN) with a gradient reversal layer."""
import torch
import torch.nn.functional as F
from torch import nn


class ReverseGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, strength, x):
        ctx.save_for_backward(strength)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        (strength,) = ctx.saved_tensors
        return -strength * grad, None


class DomainBranch(nn.Module):
    def __init__(self, dim, strength=1.0):
        super().__init__()
        self.project = nn.Linear(dim, dim)
        self.classify = nn.Linear(dim, 2)
        self.register_buffer("strength", torch.tensor(strength))
        self.log = []

    def _log_reversed(self, grad):
        self.log.append(None if grad is None else grad.norm().item())

    def forward(self, features):
        z = self.project(features)
        z.register_hook(self._log_reversed)
        return self.classify(ReverseGrad.apply(self.strength, z))


class Dann(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(6, dim), nn.ReLU())
        self.label = nn.Linear(dim, 2)
        self.domain = DomainBranch(dim)

    def forward(self, x):
        h = self.features(x)
        return self.label(h), self.domain(h)


def main():
    torch.manual_seed(0)
    model = Dann()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.domain.project.weight.detach().clone()
    for step in range(6):
        source, target = torch.randn(16, 6), torch.randn(16, 6) + 1.0
        labels, domains = model(torch.cat([source, target]))
        task_loss = F.cross_entropy(labels[:16], (source[:, 0] > 0).long())
        domain_loss = F.cross_entropy(domains, torch.arange(2).repeat_interleave(16))
        optimizer.zero_grad()
        (task_loss + domain_loss).backward()
        optimizer.step()
        print(f"step {step} task {task_loss.item():.3f} domain {domain_loss.item():.3f}")
    print("reversed gradient norms:", model.domain.log)
    print(f"projection moved by {(model.domain.project.weight - before).norm().item():.4f}")


if __name__ == "__main__":
    main()
