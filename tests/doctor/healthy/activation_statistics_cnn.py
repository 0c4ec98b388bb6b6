"""Train a small CNN on the digits and log mean and deviation of what each convolution puts out."""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

torch.manual_seed(0)

digits = load_digits()
images = torch.tensor(digits.images[:256], dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target[:256])

model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1),
    nn.BatchNorm2d(8),
    nn.ReLU(inplace=True),
    nn.MaxPool2d(2),
    nn.Conv2d(8, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(inplace=True),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(16, 10),
)
log = {}


def log_statistics(name):
    def hook(module, inputs, output):
        out = output.detach()
        log.setdefault(name, []).append((out.mean().item(), out.std().item()))

    return hook


for name, module in model.named_modules():
    if isinstance(module, nn.Conv2d):
        module.register_forward_hook(log_statistics(name))

optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
for batch in torch.arange(256).split(32):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images[batch]), labels[batch])
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, log, list(model.state_dict().values())]
