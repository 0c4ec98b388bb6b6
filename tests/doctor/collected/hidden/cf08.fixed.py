"""Prune a LeNet step by step and log the gradient that still reaches the weights."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.utils.prune as prune

torch.manual_seed(7)


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5)
        self.conv2 = nn.Conv2d(6, 12, 3)
        self.fc1 = nn.Linear(12 * 3 * 3, 32)
        self.fc2 = nn.Linear(32, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class GradLog:
    def __init__(self):
        self.norms = {}

    def attach(self, name, layer):
        self.norms[name] = []
        # called with the gradient of the layer's weight in every backward pass
        getattr(layer, "weight_orig", layer.weight).register_hook(lambda g: self.norms[name].append(g.norm().item()))

    def summary(self, name):
        values = self.norms[name]
        return f"{len(values)} entries, last {values[-1]:.4f}" if values else "0 entries"


def batch(n=16):
    y = torch.randint(0, 4, (n,))
    x = torch.randn(n, 1, 20, 20) * 0.5
    for i, c in enumerate(y):
        x[i, :, 5 * c:5 * c + 5] += 1.0
    return x, y


def finetune(model, opt, steps):
    for _ in range(steps):
        x, y = batch()
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


model = LeNet()
opt = torch.optim.SGD(model.parameters(), lr=0.05)
print(f"dense loss {finetune(model, opt, 20):.3f}")

targets = {"conv1": model.conv1, "conv2": model.conv2, "fc1": model.fc1}
for layer in targets.values():
    prune.l1_unstructured(layer, "weight", amount=0.5)

log = GradLog()
for name, layer in targets.items():
    log.attach(name, layer)
log.attach("fc2", model.fc2)

print(f"pruned loss {finetune(model, opt, 10):.3f}")
for name, layer in {**targets, "fc2": model.fc2}.items():
    sparsity = (layer.weight == 0).float().mean().item()
    print(f"{name}: sparsity {sparsity:.2f}, gradient log {log.summary(name)}")
