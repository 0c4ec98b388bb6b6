"""Grad-CAM at several depths of one network."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(4)


class Stage(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, 3, stride, 1)
        self.bn = nn.BatchNorm2d(c_out)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


class Net(nn.Module):
    def __init__(self, width=16, classes=4):
        super().__init__()
        self.stage1 = Stage(3, width, 1)
        self.stage2 = Stage(width, width, 2)
        self.stage3 = Stage(width, width, 2)
        self.fc = nn.Linear(width, classes)

    def forward(self, x):
        x = self.stage3(self.stage2(self.stage1(x)))
        return self.fc(x.mean((2, 3)))


class MultiLayerCAM:
    def __init__(self, model, layers):
        self.model = model
        self.layers = layers
        self.activations, self.gradients = [], []
        self.handles = []
        for layer in layers:
            self.handles.append(layer.register_forward_hook(self.save_activation))
            self.handles.append(layer.register_full_backward_hook(self.save_gradient))

    def save_activation(self, module, args, output):
        self.activations.append(output.detach())

    def save_gradient(self, module, grad_input, grad_output):
        self.gradients.insert(0, grad_output[0].detach())

    def __call__(self, image, target):
        self.activations, self.gradients = [], []
        self.model.zero_grad()
        self.model(image)[0, target].backward()
        cams = []
        # one pair per layer, in the order in which the layers were given
        for act, grad in zip(self.activations, self.gradients):
            weight = grad.mean((2, 3), keepdim=True)
            cam = F.relu((weight * act).sum(1, keepdim=True))
            cams.append(F.interpolate(cam / (cam.max() + 1e-8), size=image.shape[-2:], mode="bilinear"))
        return cams

    def close(self):
        for h in self.handles:
            h.remove()


model = Net().eval()
image = torch.zeros(1, 3, 24, 24)
image[:, :, 4:10, 12:20] = torch.randn(1, 3, 6, 8) + 2.0
target = model(image).argmax(1).item()
cam = MultiLayerCAM(model, [model.stage1, model.stage2, model.stage3])
maps = cam(image, target)
for i, (m, g) in enumerate(zip(maps, cam.gradients), 1):
    inside = m[..., 4:10, 12:20].sum() / (m.sum() + 1e-8)
    print(f"stage{i}: gradient map {tuple(g.shape[-2:])} mass inside object {inside.item():.3f}")
cam.close()
