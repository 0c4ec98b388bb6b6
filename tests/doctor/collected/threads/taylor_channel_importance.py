"""First-order Taylor importance of conv channels (activation * gradient)."""
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self, ch=8):
        super().__init__()
        self.stem = nn.Conv2d(3, ch, 1)
        self.conv1 = nn.Conv2d(ch, ch, 3, padding=1)
        self.conv2 = nn.Conv2d(ch, ch, 3, padding=1)
        self.conv3 = nn.Conv2d(ch, ch, 3, padding=1)
        self.fc = nn.Linear(ch, 4)

    def forward(self, x):
        x = torch.relu(self.conv1(self.stem(x)))
        x = torch.relu(self.conv2(x))
        x = torch.relu(self.conv3(x))
        return self.fc(x.mean((2, 3)))


model = Net()
convs = {n: m for n, m in model.named_modules() if n.startswith("conv")}
acts, grads = [], []
for m in convs.values():
    m.register_forward_hook(lambda mod, i, o: acts.append(o.detach()))
    m.register_full_backward_hook(lambda mod, gi, go: grads.append(go[0].detach()))

with torch.no_grad():
    model.conv2.weight[:, 5] = 0.0

x = torch.randn(16, 3, 10, 10)
y = torch.randint(0, 4, (16,))
nn.functional.cross_entropy(model(x), y, reduction="sum").backward()

importance = {}
for name, a, g in zip(convs, acts, grads):
    importance[name] = (a * g).sum((2, 3)).abs().sum(0)

for name, imp in importance.items():
    print(name, " ".join(f"{v:.4f}" for v in imp.tolist()))
print(f"conv1 channel 5 (not read by conv2) has importance {importance['conv1'][5]:.4f}")
with torch.no_grad():
    base = nn.functional.cross_entropy(model(x), y, reduction="sum")
    model.conv1.weight[5].zero_()
    model.conv1.bias[5] = 0
    after = nn.functional.cross_entropy(model(x), y, reduction="sum")
print(f"change of the loss when it is removed: {(after - base).item():.6f}")
