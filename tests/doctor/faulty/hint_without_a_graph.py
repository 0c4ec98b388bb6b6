# TH549
"""Train a layer to match the features of a teacher. The stored features have no graph, so only the adapter learns."""

import torch
from torch import nn

torch.manual_seed(0)
student, adapter = nn.Sequential(nn.Linear(2, 2), nn.Tanh()), nn.Linear(2, 3)
kept = {}


def keep(module: nn.Module, args: object, output: torch.Tensor) -> None:
    kept["features"] = output.detach()


student[0].register_forward_hook(keep)  # <- TH549
optimizer = torch.optim.SGD([*student.parameters(), *adapter.parameters()], lr=0.1)
before = student[0].weight.detach().clone()
for _ in range(3):
    optimizer.zero_grad()
    student(torch.randn(4, 2))
    (adapter(kept["features"]) - 1).square().mean().backward()
    optimizer.step()
result = torch.equal(before, student[0].weight)
