# TH103
"""A saliency map: hook the image, which does not require grad."""

import torch
from torch import nn

model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(2 * 6 * 6, 3))
image = torch.rand(1, 1, 8, 8)
saliency = []
image.register_hook(lambda grad: saliency.append(grad.abs()))  # <- TH103
scores = model(image)
scores[0, scores.argmax()].backward()
result = saliency
