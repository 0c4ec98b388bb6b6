# TH202
"""Watch the gradients of an auxiliary head that runs, and that the loss forgets."""

import torch
from torch import nn


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.main = nn.Linear(8, 2)
        self.aux = nn.Linear(8, 2)

    def forward(self, x):
        h = self.body(x).relu()
        return self.main(h), self.aux(h)


model, seen = TwoHeads(), []
model.aux.register_full_backward_hook(lambda m, gi, go: seen.append(go[0].norm()))  # <- TH202
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    main, aux = model(torch.randn(4, 4))
    loss = nn.functional.cross_entropy(main, torch.tensor([0, 1, 1, 0]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
result = seen
