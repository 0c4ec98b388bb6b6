# TH504 TH506
"""Store the weight's gradient of each step, in a loop whose backwards all retain their graph."""

import torch
from torch import nn

model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
history, losses = [], []
model.weight.register_post_accumulate_grad_hook(lambda p: history.append(p.grad))  # <- TH506
for batch in torch.randn(4, 5, 3):
    optimizer.zero_grad(set_to_none=False)
    loss = model(batch).pow(2).mean()
    loss.backward(retain_graph=True)  # <- TH504
    losses.append(loss)
    optimizer.step()
result = [torch.stack(history), torch.stack(losses).detach()]
