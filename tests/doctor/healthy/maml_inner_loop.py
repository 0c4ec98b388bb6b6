"""MAML: inner steps by autograd.grad with create_graph and functional_call; forward hooks watch, step hooks count."""

import torch
from torch import nn
from torch.func import functional_call

model = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 1))
hidden, steps = [], []
model[1].register_forward_hook(lambda m, args, out: hidden.append(out.detach().abs().mean()))
meta = torch.optim.Adam(model.parameters(), lr=1e-2)
meta.register_step_post_hook(lambda opt, args, kwargs: steps.append(len(hidden)))
losses = []
for iteration in range(4):
    meta.zero_grad()
    total = 0.0
    for task in range(3):
        phase = torch.rand(()) * 3
        support, query = torch.rand(10, 1) * 4 - 2, torch.rand(10, 1) * 4 - 2
        params = dict(model.named_parameters())
        for inner in range(2):
            loss = (functional_call(model, params, support) - torch.sin(support + phase)).square().mean()
            grads = torch.autograd.grad(loss, list(params.values()), create_graph=True)
            params = {name: p - 0.1 * g for (name, p), g in zip(params.items(), grads)}
        total = total + (functional_call(model, params, query) - torch.sin(query + phase)).square().mean()
    total.backward()
    meta.step()
    losses.append(total.item())
result = [losses, hidden, steps, [p.detach().clone() for p in model.parameters()]]
