"""K-FAC in small: pre hooks take the inputs, backward hooks the output gradients; a step hook preconditions."""

import torch
import torch.nn.functional as F
from torch import nn

model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
layers = [module for module in model if isinstance(module, nn.Linear)]
inputs, outputs = {}, {}


def take_input(module, args):
    if torch.is_grad_enabled():
        x = args[0].detach()
        inputs[module] = x.T @ x / len(x)


def take_gradient(module, grad_input, grad_output):
    g = grad_output[0].detach() * len(grad_output[0])
    outputs[module] = g.T @ g / len(g)


for layer in layers:
    layer.register_forward_pre_hook(take_input)
    layer.register_full_backward_hook(take_gradient)


def precondition(optimizer, args, kwargs):
    for layer in layers:
        a = torch.linalg.inv(inputs[layer] + 0.1 * torch.eye(layer.in_features))
        g = torch.linalg.inv(outputs[layer] + 0.1 * torch.eye(layer.out_features))
        layer.weight.grad = g @ layer.weight.grad @ a


optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
optimizer.register_step_pre_hook(precondition)
losses = []
for step in range(6):
    x = torch.randn(64, 6)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), x[:, :3].argmax(dim=1))
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, [p.detach().clone() for p in model.parameters()]]
