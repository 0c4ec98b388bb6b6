# TH205
"""Go to double precision with swapped parameters: the parameter is the same object, its hook is dead."""

import torch
from torch import nn

torch.__future__.set_swap_module_params_on_conversion(True)
try:
    model = nn.Linear(3, 1)
    model.weight.register_hook(lambda grad: grad * 0)  # <- TH205
    model.double()
    model(torch.ones(2, 3, dtype=torch.float64)).sum().backward()
    result = model.weight.grad
finally:
    torch.__future__.set_swap_module_params_on_conversion(False)
