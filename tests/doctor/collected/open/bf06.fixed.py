"""Two-phase fine-tuning with an averaged (EMA) copy of the weights that is used for validation."""
import copy
import torch
import torch.nn as nn

torch.manual_seed(21)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU())
        self.head = nn.Linear(40, 3)

    def forward(self, x):
        return self.head(self.backbone(x))


class EMA:
    def __init__(self, model, decay=0.9):
        self.shadow = copy.deepcopy(model).eval()
        self.decay, self.model, self.count = decay, model, 0

    @torch.no_grad()
    def after_step(self, optimizer, args, kwargs):
        self.count += 1
        for s, p in zip(self.shadow.parameters(), self.model.parameters()):
            s.lerp_(p, 1 - self.decay)


def accuracy(net, x, y):
    with torch.no_grad():
        return (net(x).argmax(1) == y).float().mean().item()


def run_epoch(model, optimizer, x, y):
    for i in range(0, len(x), 32):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[i:i + 32]), y[i:i + 32]).backward()
        optimizer.step()


x = torch.randn(640, 10)
y = torch.stack([x[:, 0] * x[:, 1], x[:, 2], -x[:, 3]]).argmax(0)
x_val, y_val, x, y = x[512:], y[512:], x[:512], y[:512]

model = Net()
ema = EMA(model)

# phase 1: head only
for p in model.backbone.parameters():
    p.requires_grad_(False)
optimizer = torch.optim.Adam(model.head.parameters(), lr=1e-2)
optimizer.register_step_post_hook(ema.after_step)
for epoch in range(3):
    run_epoch(model, optimizer, x, y)
print(f"phase 1: live {accuracy(model, x_val, y_val):.3f}  averaged {accuracy(ema.shadow, x_val, y_val):.3f}")

# phase 2: everything, with a fresh optimizer so that no old moments are carried along
for p in model.backbone.parameters():
    p.requires_grad_(True)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
optimizer.register_step_post_hook(ema.after_step)
for epoch in range(12):
    run_epoch(model, optimizer, x, y)
print(f"phase 2: live {accuracy(model, x_val, y_val):.3f}  averaged {accuracy(ema.shadow, x_val, y_val):.3f}")

gap = sum((s - p).norm().item() for s, p in zip(ema.shadow.parameters(), model.parameters()))
print(f"averaging steps {ema.count}, distance between live and averaged weights {gap:.2f}")
