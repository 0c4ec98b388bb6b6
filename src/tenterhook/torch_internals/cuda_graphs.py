"""Notice when CUDA graphs are captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.cuda import graphs


def watch_captures(began: Callable[[], None], ended: Callable[[], None]) -> Callable[[], None]:
    """Call functions when the capture of any CUDA graph begins and ends. Return a function that stops it.

    Torch before 2.14 does not tell when a graph is captured. There, the functions are not called. Tested with torch
    2.15.
    """
    torch_graphs: Any = graphs
    names = ("register_graph_capture_start_hook", "register_graph_capture_end_hook")
    if not all(hasattr(torch_graphs, name) for name in names):
        return lambda: None
    pairs = zip(names, (began, ended), strict=True)
    handles = [getattr(torch_graphs, name)(lambda graph, call=call: call()) for name, call in pairs]

    def stop() -> None:
        for handle in handles:
            handle.remove()

    return stop
