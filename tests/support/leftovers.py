"""Clears the state that one test would leave for the next test in the same process."""

from __future__ import annotations

import torch

from tenterhook.rig.compiled import graph_cache as graphs
from tenterhook.rig.points import taps
from tenterhook.torch_internals import compiler as dynamo_private


def clear_compiled() -> None:
    """Drop compiled code, stop watching for late hooks, and remove hooks on taps, which would break graphs."""
    if dynamo_private.compiled_codes():
        torch.compiler.reset()
    for leave in list(graphs._watched.values()):
        leave()
    for table in list(taps._tables):
        table.set_hooks([])
