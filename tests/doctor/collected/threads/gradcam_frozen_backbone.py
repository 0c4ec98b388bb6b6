"""Grad-CAM before and after freezing the backbone for head fine-tuning."""
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
        self.last = nn.Conv2d(8, 8, 3, padding=1)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        return self.fc(torch.relu(self.last(self.stem(x))).mean((2, 3)))


class GradCAM:
    def __init__(self, model, layer):
        self.model = model
        layer.register_forward_hook(self.save_act)
        layer.register_full_backward_hook(self.save_grad)

    def save_act(self, module, args, output):
        self.act = output.detach()

    def save_grad(self, module, grad_input, grad_output):
        self.grad = grad_output[0].detach()

    def __call__(self, x, cls):
        self.model.zero_grad()
        self.model(x)[0, cls].backward()
        weights = self.grad.mean((2, 3), keepdim=True)
        return torch.relu((weights * self.act).sum(1))[0]


model = Net().eval()
cam = GradCAM(model, model.last)
img1, img2 = torch.randn(1, 3, 6, 6), torch.randn(1, 3, 6, 6)


def report(title, img):
    maps = [cam(img, c) for c in range(4)]
    diffs = [(maps[0] - m).abs().max().item() for m in maps[1:]]
    print(f"{title}: sum of map per class", [round(m.sum().item(), 4) for m in maps],
          "difference to class 0", [round(d, 5) for d in diffs])


report("trainable, image 1", img1)
report("trainable, image 2", img2)
for part in (model.stem, model.last):
    part.requires_grad_(False)
report("frozen,    image 1", img1)
report("frozen,    image 2", img2)
