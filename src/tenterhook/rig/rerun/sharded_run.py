"""Run the forward pass of a sharded model (FSDP2) again. All ranks do it together.

The backward pass is left out, because it would reduce gradients across ranks and accumulate them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from tenterhook.resolve.sharding import local, reshard
from tenterhook.resolve.targets import named_parameters, walk
from tenterhook.rig.rerun.call_log import CallLog, ModelCall, same_values, sample
from tenterhook.rig.rerun.module_spans import ModuleSpans
from tenterhook.rig.rerun.operation_watch import OperationWatch, Origin, badness
from tenterhook.rig.rerun.random_state import kept_random_state
from tenterhook.rig.rerun.rig_hooks import without_rigs
from tenterhook.rig.runtime.tensor_tree import leaves


@torch.no_grad()
def run_forward_again(body: nn.Module, log: CallLog) -> tuple[Origin | None, bool]:
    """Run the calls of a step again.

    Args:
        body: The model.
        log: The calls of the step.

    Returns:
        Where the first bad value came from, and whether the outputs are the same as in the first run.
    """
    names = {module: "" if name == "." else name for name, module in walk(body)}
    spans = ModuleSpans(names)
    watch = OperationWatch(spans)
    for name, parameter in named_parameters(body):  # the whole parameter exists only inside its module's forward
        if (value := badness(local(parameter))) is not None:
            watch.mark([(name, local(parameter))], "parameter")
            known: Origin | None = Origin("parameter", name, value=value)
            break
    else:
        known = None
    with ExitStack() as stack:
        stack.enter_context(kept_random_state(log.devices))
        stack.enter_context(without_rigs(names))
        stack.enter_context(spans.watched())
        stack.enter_context(_buffers_from_the_start(body, log))
        stack.callback(reshard, body)  # the root keeps its gathered parameters, and the next step would use them
        results = [_call(call, watch) for call in log.calls]
    origins = [origin for origin, _ in results if origin is not None]
    origin = known or min(origins, key=lambda one: one.order, default=None) or _bad_gradient(log)
    return origin, all(same for _, same in results)


def _call(call: ModelCall, watch: OperationWatch) -> tuple[Origin | None, bool]:
    watch.mark(call.named_inputs(), "input")
    output: Any = None

    def take(module: nn.Module, args: Any, result: Any) -> None:
        nonlocal output
        output = result

    handle = call.module.register_forward_hook(take)
    try:
        call.random.restore()
        with call.modes.applied(), torch.no_grad(), watch:
            call.module(*call.arguments, **call.keywords)
    finally:
        handle.remove()
    found = leaves(output)
    outputs = [found[place] for place in call.places if place < len(found)]
    same = len(outputs) == len(call.samples) and all(map(same_values, map(sample, outputs), call.samples))
    bad = [origin for one in outputs if (origin := watch.origin_of(one)) is not None]
    return min(bad, key=lambda one: one.order, default=None), same


def _bad_gradient(log: CallLog) -> Origin | None:
    """Return the loss as the origin, if the gradient that it sent into the model was bad."""
    kept = (one for call in log.calls for gradients in call.gradients.values() for one in gradients.values())
    values = [value for one in kept if (value := badness(one)) is not None]
    return Origin("gradient", "", value=values[0]) if values else None


@contextmanager
def _buffers_from_the_start(body: nn.Module, log: CallLog) -> Iterator[None]:
    """Give the buffers the values from before the step in a block."""
    now = {name: (buffer, buffer.detach().clone()) for name, buffer in body.named_buffers()}
    for name, value in log.buffers.at_start().items():
        if name in now:
            now[name][0].copy_(value)
    try:
        yield
    finally:
        for buffer, value in now.values():
            buffer.copy_(value)
