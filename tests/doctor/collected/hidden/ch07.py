"""Adapter training on a frozen backbone with hooks that prove the freeze, and a masked new filter bank."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(6)


class Net(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU())
        self.adapter = nn.Conv2d(8, 8, 1)
        self.fc = nn.Linear(8, classes)

    def forward(self, x):
        return self.fc(F.relu(self.adapter(self.backbone(x))).mean((2, 3)))


def batch(n=16):
    y = torch.randint(0, 4, (n,))
    x = torch.randn(n, 1, 12, 12)
    for i, c in enumerate(y):
        x[i, :, 3 * c:3 * c + 3] += 1.5
    return x, y


model = Net()
for p in model.backbone.parameters():
    p.requires_grad_(False)

# no gradient may enter the backbone: this counter is expected to stay at zero
visits = {"backbone": 0, "adapter": 0}
model.backbone.register_full_backward_hook(lambda m, gi, go: visits.update(backbone=visits["backbone"] + 1))
model.adapter.register_full_backward_hook(lambda m, gi, go: visits.update(adapter=visits["adapter"] + 1))

# only the upper half of the adapter's filters may learn; plain SGD without decay or momentum,
# so a zero gradient means no change
mask = torch.zeros_like(model.adapter.weight)
mask[4:] = 1
handle = model.adapter.weight.register_hook(lambda g: g * mask)
start = model.adapter.weight.detach().clone()
frozen = [p.clone() for p in model.backbone.parameters()]

opt = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.2)
for step in range(15):
    x, y = batch()
    loss = F.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()

change = (model.adapter.weight.detach() - start).abs().amax((1, 2, 3))
print(f"loss {loss.item():.3f}")
print("backward visits", visits)
print("adapter change per filter", " ".join(f"{v:.4f}" for v in change.tolist()))
print("backbone untouched:", all(torch.equal(a, b) for a, b in zip(frozen, model.backbone.parameters())))
assert visits == {"backbone": 0, "adapter": 15} and change[:4].max() == 0 and change[4:].min() > 0
handle.remove()
