"""Find out which module runs, and which module's forward pass made a node of the autograd graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from tenterhook import torch_internals as private


class ModuleSpans:
    """The calls of modules, each with the range of sequence numbers of the autograd nodes that it made.

    Args:
        names: The names of the modules.
    """

    def __init__(self, names: Mapping[nn.Module, str]) -> None:
        self._names = names
        self._stack: list[tuple[str, int]] = []
        #: name, first and last sequence number of each call that ended; an inner call is before the outer one
        self._ended: list[tuple[str, int, int]] = []

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the calls in a block."""
        handles = []
        for module in self._names:
            handles.append(private.register_first(module, self._begin))
            handles.append(module.register_forward_hook(self._end, always_call=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            self._stack.clear()

    def _begin(self, module: nn.Module, args: Any) -> None:
        self._stack.append((self._names[module], private.sequence_number()))

    def _end(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._stack:
            name, first = self._stack.pop()
            self._ended.append((name, first, private.sequence_number()))

    def running(self) -> str:
        """Return the innermost module that runs now, or an empty text."""
        return self._stack[-1][0] if self._stack else ""

    def of_node(self, node: torch.autograd.graph.Node) -> str:
        """Return the innermost module whose call made a node, or an empty text."""
        number = private.node_number(node)
        # A checkpoint calls modules again in the backward pass, so the running call may have made the node.
        found = next((name for name, first, last in self._ended if first <= number < last), None)
        return self.running() if found is None else found
