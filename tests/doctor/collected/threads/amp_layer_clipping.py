"""Per-parameter clipping during backward, with the usual mixed precision recipe (CPU)."""
import torch
from torch import nn

torch.set_num_threads(1)
MAX_NORM = 1.0


def clip_hook(grad):
    norm = grad.norm()
    if norm > MAX_NORM:
        grad = grad * (MAX_NORM / norm)
    return grad


def make_data():
    g = torch.Generator().manual_seed(1)
    x = torch.randn(512, 12, generator=g)
    y = (x[:, 0] * x[:, 1] > 0).long()
    return x, y


def train(use_amp):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 2))
    for p in model.parameters():
        p.register_hook(clip_hook)
    opt = torch.optim.SGD(model.parameters(), lr=0.5)
    scaler = torch.amp.GradScaler("cpu", enabled=use_amp)
    x, y = make_data()
    for step in range(150):
        idx = torch.randint(0, 512, (64,))
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=use_amp):
            loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        if step % 50 == 0:
            total = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
            print(f"amp={use_amp!s:5} step {step:3d} loss {loss.item():.4f} grad norm {total:.2e}")
        scaler.step(opt)
        scaler.update()
    with torch.no_grad():
        acc = (model(x).argmax(1) == y).float().mean()
    print(f"amp={use_amp!s:5} accuracy {acc:.3f}")


train(False)
train(True)
