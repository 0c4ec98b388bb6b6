# TH225
"""An operation that returns nothing and is said to change nothing writes to a log, in inference."""

import torch
from torch import nn

log = []


@torch.library.custom_op("doctor_programs::write_log", mutates_args=())
def write_log(value: torch.Tensor, name: str) -> None:
    log.append((name, value.mean().item()))


@write_log.register_fake
def _(value, name):
    return None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.body(x).relu())


class Logged:
    def __init__(self, name):
        self.name = name

    def __call__(self, module, args):
        write_log(args[0], self.name)


model = Net().eval()
for name, module in model.named_children():
    module.register_forward_pre_hook(Logged(name))  # <- TH225
fast = torch.compile(model, backend="aot_eager")
with torch.no_grad():
    result = [fast(torch.randn(2, 4)), log]
