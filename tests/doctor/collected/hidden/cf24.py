"""4-bit weights on top of 50 % sparsity, both applied on the fly before each forward pass."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.utils.prune as prune

torch.manual_seed(23)


def fake_quant(w, bits=4):
    levels = 2 ** (bits - 1) - 1
    scale = w.detach().abs().max() / levels
    q = torch.round(w / scale).clamp(-levels, levels) * scale
    return w + (q - w).detach()  # straight-through estimator


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 12, 3, padding=1)
        self.conv2 = nn.Conv2d(12, 12, 3, stride=2, padding=1)
        self.fc = nn.Linear(12, 5)

    def forward(self, x):
        return self.fc(F.relu(self.conv2(F.relu(self.conv1(x)))).mean((2, 3)))


def quantise_weight(module, args):
    """Replace the (already masked) weight by its 4-bit version for this forward pass."""
    if "weight_orig" in module._parameters:
        module.weight = fake_quant(module.weight)


def compress(model, amount):
    for layer in (model.conv1, model.conv2):
        layer.register_forward_pre_hook(quantise_weight)
        prune.l1_unstructured(layer, "weight", amount=amount)


def batch(n=16):
    y = torch.randint(0, 5, (n,))
    return torch.randn(n, 3, 8, 8) * (0.5 + y.view(-1, 1, 1, 1)), y


def train(model, steps, lr=0.05):
    opt = torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(steps):
        x, y = batch()
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


model = Net()
print(f"warm-up loss {train(model, 20):.3f}")
compress(model, amount=0.5)
print(f"compressed training loss {train(model, 20):.3f}")

model.eval()
with torch.no_grad():
    model(batch()[0])
for name in ("conv1", "conv2"):
    w = getattr(model, name).weight.detach()
    levels = torch.unique((w * 1e6).round()).numel()
    print(f"{name}: sparsity {(w == 0).float().mean().item():.2f} distinct levels {levels}")
