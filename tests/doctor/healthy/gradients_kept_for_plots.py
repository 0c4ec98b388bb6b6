"""Keep copies of some gradients for later plots, and of an activation's gradient by retain_grad in a hook."""

import torch
import torch.nn.functional as F
from torch import nn

model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 2))
history, activations, activation_grads = [], [], []
model[0].weight.register_hook(lambda grad: history.append(grad.detach().clone()))


def keep(module, args, output):
    output.retain_grad()
    activations.append(output)


model[1].register_forward_hook(keep)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.5)
losses = []
for step in range(6):
    x = torch.randn(16, 6)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), (x[:, 0] > 0).long())
    loss.backward()
    optimizer.step()
    activation_grads.append(activations.pop().grad)
    losses.append(loss.item())
result = [losses, history, activation_grads, [p.detach().clone() for p in model.parameters()]]
