"""Grad-CAM on the last convolutional stage of a ResNet-like model with a GAP head."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(24)


class Bottleneck(nn.Module):
    def __init__(self, c, mid):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(c, mid, 1, bias=False), nn.BatchNorm2d(mid)
        self.conv2, self.bn2 = nn.Conv2d(mid, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        return x + self.relu(self.bn2(self.conv2(y)))


class Net(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 12, 3, 2, 1), nn.ReLU())
        self.block = Bottleneck(12, 6)
        self.last = nn.Sequential(nn.Conv2d(12, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(inplace=True))
        self.fc = nn.Linear(12, classes)

    def forward(self, x):
        x = self.last(self.block(self.stem(x)))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class GradCAM:
    def __init__(self, model, layer):
        self.model = model.eval()
        self.act = self.grad = None
        self.handle = layer.register_forward_hook(self.keep)

    def keep(self, module, args, out):
        self.act = out
        # gradient of the score with respect to this very map
        out.register_hook(self.keep_grad)

    def keep_grad(self, grad):
        self.grad = grad

    def __call__(self, image, target):
        self.model.zero_grad()
        self.model(image)[0, target].backward()
        alpha = self.grad.mean((2, 3))
        cam = F.relu((alpha[..., None, None] * self.act.detach()).sum(1))
        return alpha[0], cam[0]


model = Net()
cam = GradCAM(model, model.last[1])
image = torch.randn(1, 3, 16, 16)
target = model(image).argmax(1).item()
alpha, heat = cam(image, target)

print("target", target, "heat map", tuple(heat.shape))
print(f"stored map: minimum {cam.act.min().item():.3f} zeros {(cam.act == 0).float().mean().item():.3f}")
# with global average pooling and one linear layer, alpha * H * W must be the classifier's row
h, w = cam.act.shape[-2:]
row = model.fc.weight[target].detach()
print(f"distance to the classifier row {(alpha * h * w - row).abs().max().item():.4f}")
order = alpha.argsort(descending=True)[:3].tolist()
print("strongest channels", order, "classifier says", row.argsort(descending=True)[:3].tolist())
cam.handle.remove()
