"""Energy-demand regression with loss scaling; gradients are value-clipped because of outlier days."""
import torch
from torch import nn

torch.manual_seed(0)
LIMIT = 0.5
STEPS = 60


class DemandNet(nn.Module):
    def __init__(self, n_in=12, width=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_in, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        return self.out(self.body(x)).squeeze(-1)


def make_data(n=512):
    x = torch.randn(n, 12)
    w = torch.randn(12)
    y = 2.0 * torch.sin(x @ w * 0.3) + 0.1 * torch.randn(n)
    y[::97] *= 6.0                       # a few outlier days
    return x, y


def clip_by_value(model, limit, scaler):
    """Clamp every entry of every parameter gradient to [-limit, limit] as it is produced."""
    def clamp(g):
        bound = limit * scaler.get_scale()      # the hook sees the scaled gradient
        return g.clamp(-bound, bound)
    return [p.register_hook(clamp) for p in model.parameters()]


def main():
    x, y = make_data()
    model = DemandNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 13)
    clip_by_value(model, LIMIT, scaler)

    first = last = None
    biggest = 0.0
    for step in range(STEPS):
        idx = torch.randint(0, len(x), (64,))
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            pred = model(x[idx])
        loss = nn.functional.mse_loss(pred.float(), y[idx])
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        biggest = max(biggest, max(p.grad.abs().max().item() for p in model.parameters()))
        scaler.step(optimizer)
        scaler.update()
        first = loss.item() if first is None else first
        last = loss.item()

    with torch.no_grad():
        final = nn.functional.mse_loss(model(x), y).item()
    print(f"loss first step {first:.3f}, last step {last:.3f}, full data {final:.3f}")
    print(f"largest gradient entry that reached the optimizer: {biggest:.6f}")
    print(f"loss scale at the end: {scaler.get_scale():.0f}")


if __name__ == "__main__":
    main()
