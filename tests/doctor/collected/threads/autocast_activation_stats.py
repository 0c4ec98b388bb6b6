"""Calibration: mean absolute activation per channel over many batches under autocast."""
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


class ChannelMean:
    def __init__(self, module):
        self.total, self.batches = None, 0
        self.handle = module.register_forward_hook(self.hook)

    def hook(self, module, args, out):
        value = out.detach().abs().mean(0)
        self.total = value if self.total is None else self.total + value
        self.batches += 1

    def result(self):
        return (self.total / self.batches).float()


model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 6)).eval()
gen = torch.Generator().manual_seed(1)
data = [torch.randn(32, 16, generator=gen) for _ in range(1200)]


def calibrate(batches, amp):
    stat = ChannelMean(model[2])
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
        for x in batches:
            model(x)
    stat.handle.remove()
    return stat.result()


def fmt(t):
    return " ".join(f"{v:.4f}" for v in t.tolist())


for n in (100, 400, 1200):
    print(f"{n:4d} batches, autocast: {fmt(calibrate(data[:n], True))}")
print(f"1200 batches, float32:  {fmt(calibrate(data, False))}")
