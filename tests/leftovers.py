"""What one test leaves to the next one in the same process."""

from __future__ import annotations

import sys

import torch

from tenterhook.rig import graphs


def clear_compiled() -> None:
    """What was compiled, and rigs that still have the compiler look for late hooks."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
    for leave in list(graphs._watched.values()):
        leave()
