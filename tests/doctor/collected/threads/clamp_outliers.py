"""Fine-tune while clamping the activations of one layer (outlier suppression)."""
import torch
from torch import nn

LIMIT = 3.0


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.up = nn.Linear(d, 2 * d)
        self.down = nn.Linear(2 * d, d)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.inp = nn.Linear(6, d)
        self.block1, self.block2 = Block(d), Block(d)
        self.head = nn.Linear(d, 2)

    def forward(self, x):
        return self.head(self.block2(self.block1(self.inp(x))))


@torch.no_grad()
def limit_outliers(module, args, output):
    return output.clamp(-LIMIT, LIMIT)


def grads(with_hook):
    torch.manual_seed(0)
    model = Net()
    if with_hook:
        model.block2.down.register_forward_hook(limit_outliers)
    x = torch.randn(64, 6)
    y = (x[:, 0] * x[:, 1] > 0).long()
    logits = model(x)
    nn.functional.cross_entropy(logits, y).backward()
    return logits.detach(), {n: None if p.grad is None else p.grad.norm().item() for n, p in model.named_parameters()}


out0, g0 = grads(False)
out1, g1 = grads(True)
print(f"logits with and without limit differ by {(out0 - out1).abs().max():.6f} (no outliers in this batch)")
for n in g0:
    print(f"{n:20s} without {g0[n]:.5f}   with {'None' if g1[n] is None else format(g1[n], '.5f')}")
