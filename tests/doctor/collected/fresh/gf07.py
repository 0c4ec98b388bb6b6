"""Magnitude pruning in the middle of training: half of the weights are cut, then training goes on."""
import torch
import torch.nn as nn

torch.manual_seed(7)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(10, 32)
        self.fc2 = nn.Linear(32, 32)
        self.out = nn.Linear(32, 1)

    def forward(self, x):
        x = torch.relu(self.fc1(x))
        x = torch.relu(self.fc2(x))
        return self.out(x).squeeze(-1)


def magnitude_mask(weight, amount):
    k = int(weight.numel() * amount)
    threshold = weight.abs().flatten().kthvalue(k).values
    return (weight.abs() > threshold).float()


def prune(model, amount):
    """Zero the smallest weights and keep them at zero: masked entries get no gradient any more."""
    masks = {}
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear) and name != "out":
            mask = magnitude_mask(layer.weight.detach(), amount)
            with torch.no_grad():
                layer.weight.mul_(mask)
            layer.weight.register_hook(lambda grad, mask=mask: grad * mask)
            masks[name] = mask
    return masks


def sparsity(model):
    return {
        name: round((layer.weight == 0).float().mean().item(), 3)
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and name != "out"
    }


def run_epoch(model, opt, x, y):
    for xb, yb in zip(x.split(32), y.split(32)):
        loss = nn.functional.mse_loss(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


x = torch.randn(256, 10)
y = torch.sin(x[:, 0]) + x[:, 1] * x[:, 2]
model = Net()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)

for epoch in range(3):
    print(f"dense  epoch {epoch} loss {run_epoch(model, opt, x, y):.3f}")
masks = prune(model, amount=0.5)
print("sparsity after pruning   ", sparsity(model))
for epoch in range(3):
    print(f"sparse epoch {epoch} loss {run_epoch(model, opt, x, y):.3f}")
print("sparsity after fine-tuning", sparsity(model))
