"""Accelerate training with gradient accumulation; every parameter's gradient is limited to a fixed norm."""
import torch
import torch.nn as nn
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(2)
ACCUMULATE = 4
MAX_NORM = 0.05


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x):
        return self.layers(x).squeeze(-1)


def clip_param(p):
    """Scale the finished gradient of one parameter down to MAX_NORM."""
    norm = p.grad.norm()
    if norm > MAX_NORM:
        p.grad.mul_(MAX_NORM / norm)
        clip_count[0] += 1


def reference_update(model, batches):
    """Norm-limited gradient of the whole effective batch, computed in one go."""
    clone = Regressor()
    clone.load_state_dict(model.state_dict())
    x, y = (torch.cat(t) for t in zip(*batches))
    nn.functional.mse_loss(clone(x), y).backward()
    return [p.grad * min(1.0, MAX_NORM / p.grad.norm().item()) for p in clone.parameters()]


clip_count = [0]
x = torch.randn(64, 8) * torch.linspace(0.2, 3.0, 64)[:, None]
y = x[:, 0] * 2 - x[:, 3] + 5.0 * (torch.arange(64) % 16 == 0)
loader = DataLoader(TensorDataset(x, y), batch_size=4, shuffle=False)

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATE)
model = Regressor()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

# accumulation happens in .grad, so the limit is applied after it
for p in model.parameters():
    p.register_post_accumulate_grad_hook(clip_param)

window, worst = [], 1.0
for xb, yb in loader:
    window.append((xb, yb))
    with accelerator.accumulate(model):
        loss = nn.functional.mse_loss(model(xb), yb)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            before = [p.detach().clone() for p in model.parameters()]
            wanted = reference_update(model, window)
        optimizer.step()
        if accelerator.sync_gradients:
            step = [(b - p.detach()) / 0.5 for b, p in zip(before, model.parameters())]
            cos = [nn.functional.cosine_similarity(s.flatten(), w.flatten(), dim=0).item()
                   for s, w in zip(step, wanted)]
            worst, window = min(worst, *cos), []
        optimizer.zero_grad()

print("optimizer steps:", 64 // 4 // ACCUMULATE, " clipped gradients:", clip_count[0])
print(f"smallest cosine to the large-batch step: {worst:.3f}")
