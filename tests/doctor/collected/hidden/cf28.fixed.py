"""Two-phase fine-tuning with a max-norm constraint on the convolution filters."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(27)

LIMIT = 0.8


class Net(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(),
            nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(),
        )
        self.head = nn.Sequential(nn.Conv2d(16, 16, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, classes))

    def forward(self, x):
        return self.head(self.backbone(x))


class MaxNorm:
    """Scales every filter back to the ball of radius LIMIT after each update."""

    def __init__(self, model):
        self.weights = [m.weight for m in model.modules() if isinstance(m, nn.Conv2d)]
        self.updates = 0

    @torch.no_grad()
    def project(self, optimizer, args, kwargs):
        self.updates += 1
        for w in self.weights:
            norm = w.flatten(1).norm(dim=1).clamp(min=LIMIT)
            w.mul_((LIMIT / norm).view(-1, 1, 1, 1))


def batch(n=16):
    y = torch.randint(0, 4, (n,))
    x = torch.randn(n, 1, 12, 12)
    for i, c in enumerate(y):
        x[i, :, 3 * c:3 * c + 3] += 1.5
    return x, y


def fit(model, opt, steps):
    for _ in range(steps):
        x, y = batch()
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


model = Net()
constraint = MaxNorm(model)

# phase 1: only the head learns
for p in model.backbone.parameters():
    p.requires_grad_(False)
opt = torch.optim.SGD(model.head.parameters(), lr=0.3)
opt.register_step_post_hook(constraint.project)
print(f"phase 1 loss {fit(model, opt, 20):.3f}")

# phase 2: everything learns, the backbone with a smaller step
for p in model.backbone.parameters():
    p.requires_grad_(True)
opt = torch.optim.SGD([{"params": model.backbone.parameters(), "lr": 0.2}, {"params": model.head.parameters()}], lr=0.3, momentum=0.9)
opt.register_step_post_hook(constraint.project)
print(f"phase 2 loss {fit(model, opt, 60):.3f}")

largest = max(w.detach().flatten(1).norm(dim=1).max().item() for w in constraint.weights)
print(f"projections {constraint.updates} of 80 updates")
print(f"largest filter norm {largest:.3f} (limit {LIMIT})")
