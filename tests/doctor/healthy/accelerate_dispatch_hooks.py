"""Accelerate's own hooks on modules (add_hook_to_module, in sequence), with raw hooks beside them, while training."""

import torch
import torch.nn.functional as F
from accelerate.hooks import (
    AlignDevicesHook,
    ModelHook,
    SequentialHook,
    add_hook_to_module,
    remove_hook_from_module,
)  # fmt: skip
from torch import nn

torch.manual_seed(0)


class ScaleInput(ModelHook):
    def pre_forward(self, module, x):
        return (x * 0.5,), {}


class CountCalls(ModelHook):
    calls = 0

    def post_forward(self, module, output):
        self.calls += 1
        return output


model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4))
counter = CountCalls()
add_hook_to_module(model[0], SequentialHook(AlignDevicesHook(execution_device="cpu"), ScaleInput()))
add_hook_to_module(model[2], counter)
outputs, norms = [], []
model[0].register_forward_hook(lambda m, args, out: outputs.append(out.detach().std()))
model[2].weight.register_hook(lambda grad: norms.append(grad.norm()))

optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
losses = []
for step in range(6):
    x, y = torch.randn(16, 8), torch.randint(4, (16,))
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
remove_hook_from_module(model, recurse=True)
result = [losses, counter.calls, outputs, norms, [p.detach().clone() for p in model.parameters()]]
