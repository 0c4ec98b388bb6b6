"""Define `flight`, which watches a training and says what went wrong."""

from __future__ import annotations

import os

from torch import nn

from tenterhook.actions import ratio, stats
from tenterhook.plan import Hook, Plan, When
from tenterhook.record import Flight
from tenterhook.resolve.grouping import Group
from tenterhook.resolve.targets import Optimizers, named_optimizers
from tenterhook.rig import Rig, attach
from tenterhook.verdict.alerts import Alert
from tenterhook.verdict.examiner import Trip, watch_training


def flight_plan() -> Plan:
    """Return the plan that a flight recorder uses.

    The plan records statistics of gradients and updates in every tenth step, and of outputs in every fiftieth step.
    After a step was examined, statistics of outputs are recorded in each of the next ten steps.
    """
    everything = (".", "**")
    return Plan(
        [
            Hook("grads", on="**", at="grad_final", do=stats(), when=When(every=10, start=1)),
            Hook("updates", on="**", at="update", do=ratio(), when=When(every=10, start=1)),
            Hook("outputs", on=everything, at="output", do=stats(), when=When(every=50, start=1)),
            Hook("outputs_after", on=everything, at="output", do=stats(), when=When(after_trip=10)),
        ]
    )


def flight(
    model: nn.Module,
    optimizer: Optimizers,
    path: str | os.PathLike[str],
    *,
    steps: int = 64,
    alert: Alert | None = None,
    trip: Trip = "now",
    replace: bool = False,
    group: Group | None = None,
) -> Rig:
    """Watch a training. When it breaks, find out which layer and which step caused it, and save the recent steps.

    If the loss or the gradients are not finite, or far larger than before, the same step runs again before the
    optimizer changes anything, with every operation watched. `rig.verdict()` returns what was found. The recorder also
    writes a run folder with statistics of the recent steps under `path`. It writes the folder when a step looks wrong,
    when an error ends a `with rig:` block, or when the process receives SIGTERM. The recorder requires pyarrow.

    Args:
        model: The model.
        optimizer: The optimizer or optimizers that train the model.
        path: Folder for the reports.
        steps: Number of steps to keep in memory.
        alert: Function that is called with each new verdict while the training runs, for example to send a message.
            It runs in a thread of its own.
        trip: When the numbers of a step are read. With `"now"`, the training thread waits for them before the
            optimizer's step, once per step. With `"late"`, it never waits: they are read in the next step, so a step
            that looks wrong cannot run again, and the verdict is based on the recorded numbers only.
        replace: If True, replace hooks on the model that have the same ids.
        group: The ranks that train the model, as in `attach`.

    Returns:
        The rig. `rig.verdict()` says what went wrong, and `rig.reports` lists the written reports.

    Raises:
        ResolveError: The plan does not fit the model.
        AttachedError: The model already has a hook with one of these ids, and `replace` is False.

    Example:
        >>> import tempfile
        >>> import torch
        >>> import tenterhook as th
        >>> model = torch.nn.Linear(2, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> rig = th.flight(model, optimizer, tempfile.mkdtemp())
        >>> (model(torch.ones(1, 2)).sum() * float("inf")).backward()
        >>> optimizer.step()
        >>> rig.verdict().sentence.partition(": all")[0]
        'Step 0: the loss produced the first infinity'
        >>> rig.detach()
    """
    sink = Flight(path, steps=steps)
    rig = attach(model, flight_plan(), optimizer=optimizer, sinks=sink, replace=replace, group=group)
    watch_training(rig, list(named_optimizers(optimizer).values()), alert=alert, trip=trip)
    return rig
