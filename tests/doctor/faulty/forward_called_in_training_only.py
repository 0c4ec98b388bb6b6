# TH207
"""Call forward() of a part in the training, and the part itself in the evaluation."""

import torch
from torch import nn

torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(3, 4)
        self.head = nn.Linear(4, 1)

    def training_step(self, x):
        return self.head(self.encoder.forward(x)).square().mean()

    def forward(self, x):
        return self.head(self.encoder(x))


model = Model()
model.encoder.register_forward_hook(lambda module, args, output: output / output.norm())  # <- TH207
for _ in range(2):
    model.training_step(torch.ones(2, 3)).backward()
with torch.no_grad():
    result = model(torch.ones(2, 3))
