"""Class-incremental learning: the rows of the old classes in the classifier must stay as they are."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(22)

OLD, NEW = 4, 2


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(),
        )
        self.fc = nn.Linear(16, classes)

    def forward(self, x):
        return self.fc(self.features(x).mean((2, 3)))


def batch(classes, n=24):
    y = classes[torch.randint(0, len(classes), (n,))]
    x = 0.5 * torch.randn(n, 1, 12, 12)
    for i, c in enumerate(y.tolist()):
        x[i, :, 2 * c:2 * c + 2] += 2.0
    return x, y


def run(model, opt, classes, steps):
    for _ in range(steps):
        x, y = batch(classes)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


model = Net(OLD)
opt = torch.optim.AdamW(model.parameters(), lr=0.01)
print(f"old classes, loss {run(model, opt, torch.arange(OLD), 40):.3f}")

# widen the classifier, old rows first
wide = nn.Linear(16, OLD + NEW)
with torch.no_grad():
    wide.weight[:OLD] = model.fc.weight
    wide.bias[:OLD] = model.fc.bias
model.fc = wide
for p in model.features.parameters():
    p.requires_grad_(False)


def new_rows_only(grad):
    grad = grad.clone()
    grad[:OLD] = 0
    return grad


for p in model.fc.parameters():
    p.register_hook(new_rows_only)  # with a zero gradient the optimizer has nothing to do there

snapshot = model.fc.weight.detach().clone()
opt = torch.optim.AdamW(model.fc.parameters(), lr=0.02, weight_decay=0.0)
print(f"new classes, loss {run(model, opt, torch.arange(OLD, OLD + NEW), 50):.3f}")
change = (model.fc.weight.detach() - snapshot).abs().amax(1)
print("gradient of the old rows", model.fc.weight.grad[:OLD].abs().max().item())
print("change per row", " ".join(f"{v:.4f}" for v in change.tolist()))
print(f"largest change of an old row {change[:OLD].max().item():.4f}")
