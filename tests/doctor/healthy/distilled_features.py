"""Distil by features: hooks take the middle layers of both nets; the student's keep their graph for the loss."""

import torch
import torch.nn.functional as F
from torch import nn


class FeatureTaker:
    def __init__(self, model, names):
        self.features = {}
        for name in names:
            model.get_submodule(name).register_forward_hook(self.take(name))

    def take(self, name):
        def hook(module, args, output):
            self.features[name] = output

        return hook


teacher = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)).eval()
student = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))
adapters = nn.ModuleList([nn.Linear(16, 64), nn.Linear(16, 64)])
wanted, had = FeatureTaker(teacher, ["1", "3"]), FeatureTaker(student, ["1", "3"])

optimizer = torch.optim.Adam([*student.parameters(), *adapters.parameters()], lr=1e-2)
losses = []
for step in range(8):
    x = torch.randn(32, 8)
    with torch.no_grad():
        soft = F.softmax(teacher(x) / 2, dim=1)
    logits = student(x)
    loss = F.kl_div(F.log_softmax(logits / 2, dim=1), soft, reduction="batchmean")
    for adapter, name in zip(adapters, ["1", "3"]):
        loss = loss + 0.1 * F.mse_loss(adapter(had.features[name]), wanted.features[name])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, [p.detach().clone() for net in (student, adapters, teacher) for p in net.parameters()]]
