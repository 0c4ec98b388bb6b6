"""Calibrating a lens-distortion model with L-BFGS while some coefficients are known.

The known coefficients come from the data sheet and have to keep their values; only the
remaining ones are fitted to the measured points.
"""
import torch
from torch import nn

torch.set_num_threads(1)
TRUE = torch.tensor([0.12, -0.35, 0.08, 0.02, -0.01, 0.05])
DATASHEET = {0: 0.10, 4: -0.02}


class Distortion(nn.Module):
    """Radial polynomial with two tangential terms."""

    def __init__(self):
        super().__init__()
        self.coef = nn.Parameter(torch.zeros(6))
        self.centre = nn.Parameter(torch.zeros(2))

    def forward(self, pts):
        p = pts - self.centre
        r2 = p.pow(2).sum(1, keepdim=True)
        k = self.coef
        radial = 1 + k[0] * r2 + k[1] * r2 ** 2 + k[2] * r2 ** 3
        xy = p.prod(1, keepdim=True)
        tangential = torch.cat([2 * k[3] * xy, 2 * k[4] * xy], 1) + k[5] * p * r2.sqrt()
        return p * radial + tangential + self.centre


def measure(n=400):
    g = torch.Generator().manual_seed(9)
    pts = torch.rand(n, 2, generator=g) * 2 - 1
    cam = Distortion()
    with torch.no_grad():
        cam.coef.copy_(TRUE)
        cam.centre.copy_(torch.tensor([0.03, -0.02]))
        seen = cam(pts) + 0.002 * torch.randn(n, 2, generator=g)
    return pts, seen


class KnownCoefficients:
    def __init__(self, param, values):
        self.param, self.values = param, values
        self.free = torch.ones_like(param)
        with torch.no_grad():
            for i, v in values.items():
                param[i] = v
                self.free[i] = 0.0

    def before_step(self, optimizer, args, kwargs):
        if self.param.grad is not None:
            self.param.grad.mul_(self.free)

    def drift(self):
        return max(abs(self.param[i].item() - v) for i, v in self.values.items())


def main():
    torch.manual_seed(0)
    pts, seen = measure()
    model = Distortion()
    known = KnownCoefficients(model.coef, DATASHEET)
    opt = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=8, line_search_fn="strong_wolfe")

    def closure():
        opt.zero_grad(set_to_none=False)
        loss = (model(pts) - seen).pow(2).mean()
        loss.backward()
        known.before_step(opt, (), {})
        return loss

    for it in range(8):
        loss = opt.step(closure)
    print(f"rms error {loss.item() ** 0.5:.5f}")
    print("coefficients", " ".join(f"{v:+.4f}" for v in model.coef.tolist()))
    print(f"deviation from the data sheet: {known.drift():.4f}")


if __name__ == "__main__":
    main()
