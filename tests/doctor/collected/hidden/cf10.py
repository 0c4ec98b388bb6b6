"""Post-training static quantisation with a per-layer error report (float vs int8)."""
import torch
import torch.nn as nn
import torch.ao.quantization as tq

torch.manual_seed(9)
torch.backends.quantized.engine = "fbgemm"


class ConvBNReLU(nn.Module):
    def __init__(self, c_in, c_out, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, 3, stride, 1)
        self.bn = nn.BatchNorm2d(c_out)
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.relu(self.bn(self.conv(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.quant = tq.QuantStub()
        self.stem = ConvBNReLU(3, 8)
        self.body = ConvBNReLU(8, 16, 2)
        self.fc = nn.Linear(16, 5)
        self.dequant = tq.DeQuantStub()

    def forward(self, x):
        x = self.body(self.stem(self.quant(x)))
        return self.dequant(self.fc(x.mean((2, 3))))


def fuse(model):
    tq.fuse_modules(model, [[f"{b}.conv", f"{b}.bn", f"{b}.relu"] for b in ("stem", "body")], inplace=True)


outputs = {}


def tap(name):
    def hook(module, args, out):
        out = out.dequantize() if out.is_quantized else out
        outputs[name] = out.detach().clone()

    return hook


model = Net()
with torch.no_grad():
    for _ in range(10):
        model(torch.randn(8, 3, 16, 16))  # settle the batch norm statistics
model.eval()
fuse(model)

layers = {"stem": model.stem.conv[0], "body": model.body.conv[0], "fc": model.fc}
# swapping a layer keeps its hooks, so the same taps serve the float and the int8 model
for name, layer in layers.items():
    layer.register_forward_hook(tap(name))

images = torch.randn(16, 3, 16, 16)
with torch.no_grad():
    float_logits = model(images)
    reference = dict(outputs)
    model.qconfig = tq.get_default_qconfig("fbgemm")
    tq.prepare(model, inplace=True)
    model(images)  # calibration
    tq.convert(model, inplace=True)
    int8_logits = model(images)

print("layers:", type(model.stem.conv).__name__, type(model.fc).__name__)
for name in layers:
    err = (outputs[name] - reference[name]).abs()
    print(f"{name:5s} max abs error {err.max().item():.5f} mean {err.mean().item():.6f}")
print(f"logits max abs error {(int8_logits - float_logits).abs().max().item():.5f}")
