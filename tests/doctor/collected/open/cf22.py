"""Magnitude pruning with own masks, then export of the sparse weights."""
import io

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(21)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.fc = nn.Linear(16, 4)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        return self.fc(x.mean((2, 3)))


class Pruner:
    def __init__(self, model, amount):
        self.masks, self.handles = {}, []
        for name, m in model.named_modules():
            if isinstance(m, nn.Conv2d):
                score = m.weight.detach().abs()
                limit = score.flatten().kthvalue(int(amount * score.numel())).values
                self.masks[name] = (score > limit).float()
                self.handles.append(m.register_forward_pre_hook(self.apply_mask(name)))

    def apply_mask(self, name):
        def hook(module, args):
            # pruned weights are zero whenever the layer is used
            with torch.no_grad():
                module.weight.mul_(self.masks[name])

        return hook


def batch(n=16):
    y = torch.randint(0, 4, (n,))
    x = torch.randn(n, 1, 8, 8)
    for i, c in enumerate(y):
        x[i, :, 2 * c:2 * c + 2] += 2.0
    return x, y


def train(model, opt, steps):
    for _ in range(steps):
        x, y = batch()
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


model = Net()
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
print(f"dense loss {train(model, opt, 40):.3f}")
pruner = Pruner(model, amount=0.7)
print(f"loss after retraining {train(model, opt, 30):.3f}")

buffer = io.BytesIO()
torch.save(model.state_dict(), buffer)
buffer.seek(0)
weights = torch.load(buffer)
for name in pruner.masks:
    w = weights[name + ".weight"]
    print(f"{name}: sparsity in checkpoint {(w == 0).float().mean().item():.3f}")
total = sum(int((w != 0).sum()) for k, w in weights.items() if "conv" in k and k.endswith("weight"))
print("non-zero conv weights to ship:", total)
