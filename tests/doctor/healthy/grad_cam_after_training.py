"""Train a small CNN, then make a Grad-CAM map: a forward hook keeps the activation and hooks its gradient."""

import torch
import torch.nn.functional as F
from torch import nn


class GradCAM:
    def __init__(self, model, layer):
        self.model = model
        self.activations = None
        self.gradients = None
        self.handle = layer.register_forward_hook(self.save_activation)

    def save_activation(self, module, inputs, output):
        self.activations = output.detach()
        if output.requires_grad:
            output.register_hook(self.save_gradient)

    def save_gradient(self, grad):
        self.gradients = grad.detach().clone()

    def __call__(self, image, label):
        self.model.zero_grad()
        self.model(image)[0, label].backward()
        weights = self.gradients.mean(dim=(2, 3), keepdim=True)
        return F.relu((weights * self.activations).sum(dim=1))


model = nn.Sequential(
    nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for _ in range(5):
    images, labels = torch.randn(16, 3, 12, 12), torch.randint(3, (16,))
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

model.eval()
cam = GradCAM(model, model[2])
maps = [cam(torch.randn(1, 3, 12, 12), label) for label in range(3)]
cam.handle.remove()
result = [losses, maps, [p.detach().clone() for p in model.parameters()]]
