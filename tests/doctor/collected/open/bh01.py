"""Loss-scaled training; a step pre-hook of the optimizer clips the global gradient norm."""
import torch
from torch import nn

torch.manual_seed(101)
MAX_NORM = 0.5


class TempNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


class Clipper:
    """GradScaler.step unscales first and calls optimizer.step afterwards, so the hook sees true gradients."""

    def __init__(self, optimizer, max_norm):
        self.max_norm = max_norm
        self.before, self.after = [], []
        self.handles = [optimizer.register_step_pre_hook(self.clip), optimizer.register_step_post_hook(self.note)]

    def params(self, optimizer):
        return [p for g in optimizer.param_groups for p in g["params"] if p.grad is not None]

    def clip(self, optimizer, args, kwargs):
        norm = nn.utils.clip_grad_norm_(self.params(optimizer), self.max_norm)
        self.before.append(norm.item())

    def note(self, optimizer, args, kwargs):
        norms = torch.stack([p.grad.norm() for p in self.params(optimizer)])
        self.after.append(norms.norm().item())

    def remove(self):
        for h in self.handles:
            h.remove()


x = torch.randn(512, 8)
y = 3 * x[:, 0] - 2 * x[:, 1] * x[:, 2]
model = TempNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 12)
clipper = Clipper(optimizer, MAX_NORM)

for step in range(60):
    idx = torch.randint(0, 512, (64,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        pred = model(x[idx])
    loss = nn.functional.mse_loss(pred.float(), y[idx])
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 20 == 19:
        print(f"step {step + 1}: loss {loss.item():.3f}")

clipper.remove()
print(f"optimizer steps {len(clipper.after)}, unclipped norm up to {max(clipper.before):.2f}")
print(f"norm used by the optimizer at most {max(clipper.after):.3f}")
