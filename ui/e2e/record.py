"""Record runs of a model with 12 parameters for the end-to-end test.

python record.py FOLDER         # two runs of 60 steps; the second one breaks at step 40
python record.py FOLDER live    # a run that goes on until it is ended, and prints its steps
python record.py                # a training that breaks at step 40, for `tenterhook run`
"""

import sys
import time
from contextlib import nullcontext
from itertools import count
from pathlib import Path

import torch
from torch import nn

import tenterhook as th

PLAN = th.Plan(
    [
        th.Hook("grads", on="**", at="grad_final", do=th.stats()),
        th.Hook("acts", on="**", at="output", do=th.stats(), when=th.When(every=5)),
        th.Hook("sizes", on="**.weight", at="grad_final", do=th.histogram(), when=th.When(every=10)),
        th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(0.05, over="hook")),
    ]
)


def train(folder: Path | None, *, rate: float, steps: int | None, breaks: int | None = None) -> None:
    """Train a model, forever if `steps` is None. From the step `breaks` on, the loss is NaN.

    Without a folder, nothing is hooked.
    """
    torch.manual_seed(0)
    model = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(8, 8), nn.Tanh())))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    rig = folder and th.attach(model, PLAN, optimizer=optimizer, sinks=th.Store(folder))
    with rig or nullcontext():
        for step in range(steps) if steps else count():
            inputs = torch.randn(16, 8)
            loss = (model(inputs) - inputs).square().mean()
            optimizer.zero_grad()
            (loss * float("nan") if breaks is not None and step >= breaks else loss).backward()
            optimizer.step()
            if steps is None:
                print(step, flush=True)
                time.sleep(0.1)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if sys.argv[1:] else None
    torch.set_num_threads(1)
    if folder is None:
        train(None, rate=0.2, steps=60, breaks=40)
    elif sys.argv[2:] == ["live"]:
        train(folder / "live", rate=0.1, steps=None)
    else:
        train(folder / "good", rate=0.1, steps=60)
        train(folder / "broken", rate=0.2, steps=60, breaks=40)
