# TH226
"""Let the features that a compiled model has kept retain their gradient."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.body(x).relu())


class Features:
    def __call__(self, module, args, output):
        self.value = output


features, grads = Features(), []
model = Net()
model.body.register_forward_hook(features)
fast = torch.compile(model, backend="aot_eager", fullgraph=True)
for _ in range(2):
    out = fast(torch.randn(2, 4))
    features.value.retain_grad()  # <- TH226
    out.square().mean().backward()
    grads.append(features.value.grad)
result = [grads, model.body.weight.grad]
