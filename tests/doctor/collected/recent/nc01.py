"""Annealed gradient noise for a small tabular regressor trained in mixed precision.

Two runs that differ only in the seed of the noise are compared at the end: the
distance of the two solutions tells how much exploration the noise provides.
"""
import torch
from torch import nn

torch.set_num_threads(1)
SIGMA0, GAMMA, LR, STEPS = 0.3, 0.55, 0.05, 60


class Regressor(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        return self.out(self.body(x)).squeeze(-1)


class GradientNoise:
    """Adds N(0, sigma0^2 / (1 + t)^gamma) to every gradient."""

    def __init__(self, model, seed):
        self.t = 0
        self.gen = torch.Generator().manual_seed(seed)
        self.handles = [p.register_hook(self.perturb) for p in model.parameters()]

    def sigma(self):
        return (SIGMA0 ** 2 / (1 + self.t) ** GAMMA) ** 0.5

    def perturb(self, grad):
        noise = torch.randn(grad.shape, generator=self.gen)
        return grad + self.sigma() * noise

    def close(self):
        for h in self.handles:
            h.remove()


def make_data(n=512):
    g = torch.Generator().manual_seed(3)
    x = torch.randn(n, 12, generator=g)
    y = torch.sin(x[:, 0] * 2) + 0.5 * x[:, 1] * x[:, 2] + 0.1 * torch.randn(n, generator=g)
    return x, y


def train(noise_seed):
    torch.manual_seed(0)
    x, y = make_data()
    model = Regressor()
    opt = torch.optim.SGD(model.parameters(), lr=LR)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 14)
    noise = GradientNoise(model, noise_seed)
    loss = None
    for step in range(STEPS):
        idx = torch.randint(0, len(x), (64,))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            pred = model(x[idx])
        loss = nn.functional.mse_loss(pred.float(), y[idx])
        opt.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        noise.t += 1
    noise.close()
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach(), loss.item()


def main():
    w1, l1 = train(noise_seed=1)
    w2, l2 = train(noise_seed=2)
    print(f"final loss of the two runs: {l1:.4f} {l2:.4f}")
    print(f"distance of the two solutions: {(w1 - w2).norm().item():.3f}")


if __name__ == "__main__":
    main()
