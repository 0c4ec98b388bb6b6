"""Collect the first batch's features for a plot while training."""
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc1 = nn.Linear(6, 32)
        self.enc2 = nn.Linear(32, 32)
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        x = torch.relu(self.enc1(x))
        x = torch.relu(self.enc2(x))
        return self.head(x)


def data(n=64):
    x = torch.randn(n, 6)
    return x, x[:, :3].argmax(1)


model = Net()
features = {}
for name, layer in model.named_children():
    if name.startswith("enc"):
        layer.register_forward_hook(lambda m, i, o, name=name: features.setdefault(name, o.detach()))

start = model.enc1.weight.detach().clone()
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(200):
    x, y = data()
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(f"step {step:3d} loss {loss.item():.4f}")

print("features for the plot:", {k: tuple(v.shape) for k, v in features.items()})
with torch.no_grad():
    a, b = model(data()[0]), model(data()[0])
    x, y = data()
    acc = (model(x).argmax(1) == y).float().mean()
print(f"accuracy {acc:.3f} (chance 0.333)")
print(f"outputs for two different batches differ by {(a - b).abs().max():.4f}")
print(f"enc1.weight changed by {(model.enc1.weight.detach() - start).norm():.4f}")
