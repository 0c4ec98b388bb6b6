"""Create a parameter for the tests."""

from __future__ import annotations

import torch
from torch import nn


def leaf() -> nn.Parameter:
    return nn.Parameter(torch.ones(2))
