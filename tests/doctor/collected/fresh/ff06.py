"""Mixed-precision training with a loss scaler; element-wise gradient clamping through tensor hooks."""
import torch
from torch import nn

torch.manual_seed(5)
CLIP = 0.5


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x):
        return self.net(x)


def train(use_amp, epochs=30):
    torch.manual_seed(6)
    model = Regressor()
    scaler = torch.amp.GradScaler("cpu", enabled=use_amp, init_scale=4096.0, growth_interval=1000)
    for p in model.parameters():
        # no single gradient entry may exceed CLIP
        p.register_hook(lambda g: g.clamp(-CLIP, CLIP))
    opt = torch.optim.SGD(model.parameters(), lr=0.2)
    x = torch.randn(128, 10)
    y = x[:, :1] * 2 - x[:, 1:2] + 0.1 * torch.randn(128, 1)
    first = last = None
    biggest = 0.0
    for _ in range(epochs):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=use_amp):
            out = model(x)
        loss = nn.functional.mse_loss(out.float(), y)
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        biggest = max(biggest, max(p.grad.abs().max().item() for p in model.parameters()))
        scaler.step(opt)
        scaler.update()
        first = first if first is not None else loss.item()
        last = loss.item()
    return first, last, biggest


for amp in (False, True):
    first, last, biggest = train(amp)
    print(f"amp={amp!s:5}  loss {first:.3f} -> {last:.3f}  largest gradient entry {biggest:.6f}")
    print("  training made progress:", last < 0.5 * first)
