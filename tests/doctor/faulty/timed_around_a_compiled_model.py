# TH413
"""The depth of calls, measured by hooks before and after every module of the process."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.body(x).relu())


from torch.nn.modules.module import register_module_forward_pre_hook

depths = []


def before(module, args):
    depths.append(len(list(module.modules())))


handle = register_module_forward_pre_hook(before)  # <- TH413
fast = torch.compile(Net(), backend="eager")
with torch.no_grad():
    out = fast(torch.randn(2, 4))
handle.remove()
result = [out, depths]
