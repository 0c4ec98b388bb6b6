"""Grad-CAM for a small CNN with attention over channels (inference-time explanation)."""
import torch
from torch import nn


class CamNet(nn.Module):
    def __init__(self, channels=6, classes=3):
        super().__init__()
        self.conv1 = nn.Conv2d(1, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.fc = nn.Linear(channels, classes)
        self.register_buffer("channel_scale", torch.linspace(0.1, 4.0, channels).view(1, -1, 1, 1))
        self.features = None
        self.feature_grad = None

    def _save_grad(self, grad):
        self.feature_grad = grad.detach().clone()

    def forward(self, x):
        x = torch.relu(self.conv1(x))
        x = self.conv2(x)
        if x.requires_grad:
            x.register_hook(self._save_grad)
        x.mul_(self.channel_scale)
        self.features = x
        return self.fc(x.mean(dim=(2, 3)))


class GradCam:
    def __init__(self, model):
        self.model = model

    def explain(self, image, target):
        logits = self.model(image)
        self.model.features.retain_grad()
        self.model.zero_grad()
        logits[0, target].backward()
        weights = self.model.feature_grad.mean(dim=(2, 3))
        cam = torch.relu((weights[..., None, None] * self.model.features).sum(dim=1))
        return weights.squeeze(0), cam.detach()


def main():
    torch.manual_seed(0)
    model = CamNet().eval()
    cam = GradCam(model)
    image = torch.randn(1, 1, 8, 8)
    for target in range(3):
        weights, heat = cam.explain(image, target)
        reference = model.features.grad.mean(dim=(2, 3)).squeeze(0)
        print(f"class {target}: heat map maximum {heat.max().item():.4f}")
        print("  channel weights  ", [round(v, 5) for v in weights.tolist()])
        print("  d logit/d feature", [round(v, 5) for v in reference.tolist()])


if __name__ == "__main__":
    main()
