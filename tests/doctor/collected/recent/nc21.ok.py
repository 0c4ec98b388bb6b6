"""Mixed-precision training where every gradient is limited while backward is running.

The loss is scaled, so the limit is scaled as well; the optimizer sees unscaled gradients.
"""
import torch
from torch import nn

torch.set_num_threads(1)
LIMIT = 0.1


class Forecaster(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.lag = nn.Linear(24, width)
        self.mid = nn.Linear(width, width)
        self.out = nn.Linear(width, 1)

    def forward(self, window):
        h = torch.relu(self.lag(window))
        return self.out(torch.relu(self.mid(h))).squeeze(-1)


class NormLimit:
    def __init__(self, model, scaler, limit):
        self.scaler, self.limit, self.hits = scaler, limit, 0
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(self)

    def __call__(self, p):
        bound = self.limit * self.scaler.get_scale()
        norm = p.grad.norm()
        if torch.isfinite(norm) and norm > bound:
            self.hits += 1
            p.grad.mul_(bound / norm)


def windows(n=600):
    g = torch.Generator().manual_seed(31)
    t = torch.arange(n + 24).float()
    s = torch.sin(t / 5) + 0.5 * torch.sin(t / 11) + 0.05 * torch.randn(n + 24, generator=g)
    s[torch.randint(0, n, (6,), generator=g)] += 8.0
    x = s.unfold(0, 24, 1)[:n]
    return x, s[24:n + 24]


def main():
    torch.manual_seed(0)
    x, y = windows()
    model = Forecaster()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 12, growth_interval=20)
    limit = NormLimit(model, scaler, LIMIT)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    largest = 0.0
    for step in range(80):
        idx = torch.randint(0, len(x), (32,))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            pred = model(x[idx])
        loss = nn.functional.mse_loss(pred.float(), y[idx])
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        largest = max(largest, max(p.grad.norm().item() for p in model.parameters()))
        scaler.step(opt)
        scaler.update()
    print(f"loss {loss.item():.4f}   scale {scaler.get_scale():.0f}   limited {limit.hits} times")
    print(f"largest gradient norm in the optimizer: {largest:.4f}")
    assert largest <= LIMIT * 1.0001 and limit.hits > 0


if __name__ == "__main__":
    main()
