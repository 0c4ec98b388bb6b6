"""Collect activation ranges next to the observers of eager-mode quantisation."""
import torch
import torch.nn as nn
import torch.ao.quantization as tq

torch.manual_seed(10)
torch.backends.quantized.engine = "fbgemm"


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.quant = tq.QuantStub()
        self.conv1 = nn.Conv2d(1, 6, 3)
        self.act1 = nn.ReLU()
        self.conv2 = nn.Conv2d(6, 12, 3, stride=2)
        self.act2 = nn.ReLU()
        self.fc = nn.Linear(12, 3)
        self.dequant = tq.DeQuantStub()

    def forward(self, x):
        x = self.act1(self.conv1(self.quant(x)))
        x = self.act2(self.conv2(x)).mean((2, 3))
        return self.dequant(self.fc(x))


class RangeCollector:
    """Min/max of every layer output during calibration, to compare with the observers."""

    def __init__(self):
        self.ranges, self.handles = {}, []

    def attach(self, model):
        for name, m in model.named_modules():
            if isinstance(m, (nn.Conv2d, nn.Linear)):
                m.tag = name
                self.handles.append(m.register_forward_hook(self.update))

    def update(self, module, args, out):
        lo, hi = self.ranges.get(module.tag, (float("inf"), float("-inf")))
        self.ranges[module.tag] = (min(lo, out.min().item()), max(hi, out.max().item()))

    def detach(self):
        for h in self.handles:
            h.remove()


def calibration_set(n=6):
    return [torch.randn(8, 1, 14, 14) * (0.5 + i) for i in range(n)]


model = Branch().eval()
model.qconfig = tq.get_default_qconfig("fbgemm")

collector = RangeCollector()
collector.attach(model)
prepared = tq.prepare(model)

with torch.no_grad():
    for images in calibration_set():
        prepared(images)

print(f"layers with a range: {len(collector.ranges)}")
for name in ("conv1", "conv2", "fc"):
    scale, zero = getattr(prepared, name).activation_post_process.calculate_qparams()
    lo, hi = collector.ranges.get(name, (float("nan"), float("nan")))
    print(f"{name}: observed [{lo:.2f}, {hi:.2f}] observer scale {scale.item():.5f} zero point {int(zero)}")
    expected = (max(hi, 0.0) - min(lo, 0.0)) / 127
    print(f"  range / 127 = {expected:.5f}")

collector.detach()
print("done, calibration batches:", len(calibration_set()))
