"""Compare the time to save and load the state of 10^4 stateful sites with that of the model's 10^4 parameter tensors.

python -m benchmarks.keep [rounds]
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import nn

import tenterhook as th

SITES = 10_000


def model_of(tensors: int) -> nn.Module:
    rows = range(tensors // 100)
    return nn.ModuleDict(
        {f"row{i}": nn.ParameterDict({f"w{j}": nn.Parameter(torch.randn(16, 16)) for j in range(100)}) for i in rows}
    )


def saved(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def loaded(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), weights_only=True)


def spent(run: Callable[[], Any]) -> float:
    start = time.thread_time()
    run()
    return time.thread_time() - start


def measure(rounds: int, tensors: int = SITES) -> dict[str, float]:
    """Return the median CPU seconds of each task. Every round runs each task once."""
    model = model_of(tensors)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    rig = th.attach(model, th.Hook("clip", on="**", at="grad_final", do=th.clip_zscore()), optimizer=optimizer)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    weights, state = model.state_dict(), rig.state_dict()
    files = saved(weights), saved(state)
    tasks: dict[str, Callable[[], Any]] = {
        "save the model": lambda: saved(weights),
        "save the hooks": lambda: saved(rig.state_dict()),
        "load the model": lambda: model.load_state_dict(loaded(files[0])),
        "load the hooks": lambda: rig.load_state_dict(loaded(files[1])),
    }
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name, task in tasks.items():
            times[name].append(spent(task))
    return {name: median(t) for name, t in times.items()}


def main() -> None:
    torch.set_num_threads(1)
    found = measure(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
    for name, seconds in found.items():
        print(f"{name}: {seconds * 1e3:.0f} ms")
    for what in ("save", "load"):
        print(f"{what}, hooks / model: {found[f'{what} the hooks'] / found[f'{what} the model']:.3f}")


if __name__ == "__main__":
    main()
