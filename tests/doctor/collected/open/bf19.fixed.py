"""Deep residual MLP with activation checkpointing; running input statistics are collected for quantisation."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(19)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Tower(nn.Module):
    def __init__(self, dim=16, depth=4, n_classes=5):
        super().__init__()
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.head = nn.Linear(dim, n_classes)

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)


class RangeObserver:
    """Input range and number of rows per linear layer, over exactly one pass through the data."""

    def __init__(self, model):
        self.rows, self.high = {}, {}
        self.active = False
        self.handles = []
        for name, m in model.named_modules():
            if isinstance(m, nn.Linear):
                self.handles.append(m.register_forward_pre_hook(self.watch(name)))

    def watch(self, name):
        def hook(module, args):
            if not self.active:             # recomputation in backward
                return
            x = args[0].detach()
            self.rows[name] = self.rows.get(name, 0) + len(x)
            self.high[name] = max(self.high.get(name, 0.0), x.abs().max().item())
        return hook

    def remove(self):
        for h in self.handles:
            h.remove()


x = torch.randn(320, 16)
y = torch.randint(0, 5, (320,))
model = Tower()
observer = RangeObserver(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for i in range(0, len(x), 64):
    xb, yb = x[i:i + 64].requires_grad_(True), y[i:i + 64]
    observer.active = True
    logits = model(xb)
    observer.active = False
    loss = nn.functional.cross_entropy(logits, yb)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
observer.remove()

print(f"loss of the last batch {loss.item():.3f}")
print(f"data rows: {len(x)}")
for name in ("blocks.0.up", "blocks.0.down", "blocks.3.up", "head"):
    print(f"{name:14s} rows {observer.rows[name]:4d}  range +-{observer.high[name]:.3f}")
weights = {n: r / len(x) for n, r in observer.rows.items()}
print("weight of a layer in the calibration:", sorted(set(weights.values())))
