"""Collect activation ranges from a traced model for calibration."""
import torch
from torch import fx, nn

torch.manual_seed(0)


class ResBlock(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.fc = nn.Linear(d, d)
        self.scale = nn.Parameter(torch.full((d,), 3.0))

    def forward(self, x):
        return x + self.scale * torch.relu(self.fc(x))


class Net(nn.Module):
    def __init__(self, d=12):
        super().__init__()
        self.inp = nn.Linear(4, d)
        self.block1, self.block2 = ResBlock(d), ResBlock(d)
        self.out = nn.Linear(d, 2)

    def forward(self, x):
        return self.out(self.block2(self.block1(self.inp(x))))


class Calibrator:
    def __init__(self, model, names):
        self.peak = {n: 0.0 for n in names}
        for n in names:
            model.get_submodule(n).register_forward_hook(self.hook(n))

    def hook(self, n):
        def fn(mod, args, out):
            self.peak[n] = max(self.peak[n], out.detach().abs().max().item())
        return fn

    def scales(self):
        return {n: max(v, 1e-8) / 127 for n, v in self.peak.items()}


net = Net().eval()
traced = fx.symbolic_trace(net)
with torch.no_grad():
    x = torch.randn(32, 4)
    assert torch.equal(traced(x), net(x))

cal = Calibrator(traced, ["inp", "block1", "block2", "out"])
with torch.no_grad():
    for _ in range(10):
        y = traced(torch.randn(32, 4))
print("output range", round(y.abs().max().item(), 3))
for n, s in cal.scales().items():
    print(f"{n:7s} scale {s:.3e}")
