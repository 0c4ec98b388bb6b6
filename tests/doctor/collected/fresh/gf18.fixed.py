"""Training with small checkpoints: the saved weights are rounded to a coarse grid to compress better."""
import io
import zlib

import torch
import torch.nn as nn

torch.manual_seed(18)
GRID = 1 / 8


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh())
        self.head = nn.Linear(24, 1)

    def forward(self, x):
        return self.head(self.body(x)).squeeze(-1)


def round_for_storage(module, state_dict, prefix, local_metadata):
    """Only what is written to disk is rounded; the head is kept exact."""
    for key, value in state_dict.items():
        if key.startswith("body") and key.endswith("weight"):
            state_dict[key] = (value / GRID).round() * GRID


def save(model):
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    return len(zlib.compress(buffer.getvalue()))


def train_epoch(model, opt, x, y):
    total = 0.0
    for xb, yb in zip(x.split(32), y.split(32)):
        loss = nn.functional.mse_loss(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    return total / len(x.split(32))


@torch.no_grad()
def evaluate(model, x, y):
    return nn.functional.mse_loss(model(x), y).item()


x = torch.randn(256, 8)
y = torch.sin(2 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2]
model = Net()
model.register_state_dict_post_hook(round_for_storage)
opt = torch.optim.Adam(model.parameters(), lr=5e-3)

jumps = []
for epoch in range(8):
    train_loss = train_epoch(model, opt, x, y)
    before = evaluate(model, x, y)
    size = save(model)
    after = evaluate(model, x, y)
    jumps.append(abs(after - before))
    print(f"epoch {epoch} train {train_loss:.4f} eval {before:.4f} checkpoint {'small' if size < 6000 else 'large'}")
print(f"eval loss changes by saving: {max(jumps):.4f}")
distinct = model.body[2].weight.detach().unique().numel()
print("distinct values in body.2.weight:", distinct)
