"""Single tenterhook hooks: steer a layer, scale a layer's gradient, log a tensor's gradient."""

import torch
from torch import nn

import tenterhook as th

model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
vector = torch.randn(16)
steer = th.hook(model, lambda out: out + 0.1 * vector, on="1", at="output")
slow = th.hook(model, th.scale(0.5), on="0.weight", at="grad")
losses, flows = [], []
for step in range(6):
    x = torch.randn(16, 4)
    prediction = model(x)
    th.hook(prediction, lambda grad: flows.append(grad.norm().item()))
    loss = (prediction - x.sum(dim=1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
steer.remove()
slow.remove()
result = [losses, flows, [p.detach().clone() for p in model.parameters()]]
