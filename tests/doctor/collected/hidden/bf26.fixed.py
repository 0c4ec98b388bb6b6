"""bf16 autocast training; the share of active units and the mean activation are accumulated over an epoch."""
import torch
from torch import nn

torch.manual_seed(29)
ROWS, BATCH = 3072, 8


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Linear(16, 32)
        self.layer2 = nn.Linear(32, 32)
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        h = torch.relu(self.layer1(x))
        h = torch.relu(self.layer2(h))
        return self.head(h)


class ActivationSums:
    """Sum of the positive activations of a layer and number of rows, reset every epoch."""

    def __init__(self, layer):
        layer.register_forward_hook(self.add)
        self.reset()

    def reset(self):
        self.total = None
        self.rows = 0

    @torch.no_grad()
    def add(self, module, args, output):
        batch = output.float().clamp_min(0).mean(dim=1).sum()
        self.total = batch if self.total is None else self.total + batch
        self.rows += output.shape[0]

    def mean(self):
        return float(self.total) / self.rows


x = torch.randn(ROWS, 16)
y = (x @ torch.randn(16, 4)).argmax(dim=1)
model = Net()
with torch.no_grad():
    model.layer2.bias.fill_(1.0)
sums = ActivationSums(model.layer2)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

for epoch in range(2):
    sums.reset()
    order = torch.randperm(ROWS)
    for i in range(0, ROWS, BATCH):
        idx = order[i:i + BATCH]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(x[idx])
            loss = nn.functional.cross_entropy(logits, y[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    epoch_mean, rows = sums.mean(), sums.rows
    print(f"epoch {epoch}: loss {loss.item():.3f}  mean activation {epoch_mean:.3f}  rows {rows}")

# the weights hardly move at this learning rate, so one plain pass should give the same number
with torch.no_grad():
    plain = model.layer2(torch.relu(model.layer1(x))).clamp_min(0).mean().item()
print(f"mean activation in one plain pass: {plain:.3f}")
print(f"epoch statistic deviates by {100 * abs(epoch_mean - plain) / plain:.0f}%")
