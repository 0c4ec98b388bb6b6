"""Eager-mode quantisation with an own range collector that is only alive during calibration."""
import torch
import torch.nn as nn
import torch.ao.quantization as tq

torch.manual_seed(7)
torch.backends.quantized.engine = "fbgemm"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.quant = tq.QuantStub()
        self.conv = nn.Conv2d(1, 8, 3)
        self.bn = nn.BatchNorm2d(8)
        self.relu = nn.ReLU()
        self.fc = nn.Linear(8, 3)
        self.dequant = tq.DeQuantStub()

    def forward(self, x):
        x = self.relu(self.bn(self.conv(self.quant(x))))
        return self.dequant(self.fc(x.mean((2, 3))))


class Ranges:
    def __init__(self):
        self.values, self.handles = {}, []

    def attach(self, model, names):
        for name in names:
            layer = model.get_submodule(name)
            self.handles.append(layer.register_forward_hook(self.make(name)))

    def make(self, name):
        def hook(module, args, out):
            lo, hi = self.values.get(name, (0.0, 0.0))
            self.values[name] = (min(lo, out.min().item()), max(hi, out.max().item()))

        return hook

    def detach(self):
        for h in self.handles:
            h.remove()


model = Net()
with torch.no_grad():
    for _ in range(5):
        model(torch.randn(8, 1, 10, 10))
model.eval()
model = tq.fuse_modules(model, [["conv", "bn", "relu"]])
model.qconfig = tq.QConfig(
    activation=tq.MinMaxObserver.with_args(dtype=torch.quint8, quant_min=0, quant_max=127),
    weight=tq.default_weight_observer,
)
prepared = tq.prepare(model)

ranges = Ranges()
ranges.attach(prepared, ["conv", "fc"])
with torch.no_grad():
    for i in range(4):
        prepared(torch.randn(8, 1, 10, 10) * (1 + i))
ranges.detach()  # int8 tensors must not reach the collector

seen = dict(ranges.values)
for name, (lo, hi) in seen.items():
    scale, _ = prepared.get_submodule(name).activation_post_process.calculate_qparams()
    print(f"{name}: [{lo:.3f}, {hi:.3f}] own scale {(hi - lo) / 127:.5f} observer {scale.item():.5f}")
    assert abs((hi - lo) / 127 - scale.item()) < 1e-5

int8 = tq.convert(prepared)
x = torch.randn(8, 1, 10, 10)
with torch.no_grad():
    print(f"int8 error {(int8(x) - model(x)).abs().max().item():.4f}")
print("collector silent after detach:", ranges.values == seen)
