"""What one test leaves to the next one in the same process."""

from __future__ import annotations

import torch

from tenterhook.rig import dynamo_private, graphs, taps


def clear_compiled() -> None:
    """What was compiled, rigs that have the compiler look for late hooks, and hooks on taps, which break graphs."""
    if dynamo_private.compiled_codes():
        torch.compiler.reset()
    for leave in list(graphs._watched.values()):
        leave()
    for table in list(taps._tables):
        table.serve([])
