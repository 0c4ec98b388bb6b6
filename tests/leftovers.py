"""What one test leaves to the next one in the same process."""

from __future__ import annotations

import torch

from tenterhook.rig.compiled import graph_cache as graphs
from tenterhook.rig.points import taps
from tenterhook.torch_internals import compiler as dynamo_private


def clear_compiled() -> None:
    """What was compiled, rigs that have the compiler look for late hooks, and hooks on taps, which break graphs."""
    if dynamo_private.compiled_codes():
        torch.compiler.reset()
    for leave in list(graphs._watched.values()):
        leave()
    for table in list(taps._tables):
        table.set_hooks([])
