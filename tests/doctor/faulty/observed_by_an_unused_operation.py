# TH225
"""An operation of one's own records norms from inside of the compiled model; nobody uses what it returns."""

import torch
from torch import nn

norms = []


@torch.library.custom_op("doctor_programs::record_norm", mutates_args=())
def record_norm(value: torch.Tensor) -> torch.Tensor:
    norms.append(value.norm().item())
    return value.new_zeros(())


@record_norm.register_fake
def _(value):
    return value.new_zeros(())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.body(x).relu())


def watch(module, args, output):
    record_norm(output.detach())


model = Net()
model.body.register_forward_hook(watch)  # <- TH225
fast = torch.compile(model, backend="aot_eager", fullgraph=True)
for _ in range(3):
    fast(torch.randn(2, 4)).sum().backward()
result = [norms, model.body.weight.grad]
