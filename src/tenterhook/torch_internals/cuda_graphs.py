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
    if not hasattr(torch_graphs, "register_graph_capture_start_hook"):
        return lambda: None
    start = torch_graphs.register_graph_capture_start_hook(lambda graph: began())
    end = torch_graphs.register_graph_capture_end_hook(lambda graph: ended())

    def stop() -> None:
        start.remove()
        end.remove()

    return stop
