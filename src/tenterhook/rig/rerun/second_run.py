"""Run the calls of a step again, with every operation and every module watched.

The step's weights must be unchanged. Nothing that the program can see changes: parameters are aliases, so no hook on
them fires and no gradient is accumulated; buffers are copies; random generators are restored.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from tenterhook import torch_internals as private
from tenterhook.errors import RefusedError
from tenterhook.resolve.sharding import is_fsdp2, is_tensor_parallel
from tenterhook.resolve.targets import is_sharded, named_parameters, unwrapped, walk
from tenterhook.rig.rerun.call_log import CallLog, ModelCall, differentiable, same_values, sample
from tenterhook.rig.rerun.counters import Counters
from tenterhook.rig.rerun.module_spans import ModuleSpans
from tenterhook.rig.rerun.operation_watch import OperationWatch, Origin
from tenterhook.rig.rerun.random_state import kept_random_state
from tenterhook.rig.rerun.rig_hooks import forward_modifier, without_rigs
from tenterhook.rig.rerun.sharded_run import run_forward_again
from tenterhook.rig.runtime.tensor_tree import leaves, map_leaves


@dataclass(frozen=True, slots=True)
class Rerun:
    """The result of a step that ran again."""

    #: where the first bad value came from, or None if all values are finite
    origin: Origin | None
    #: True if each output has the same values as in the first run, and a bad gradient of that run is bad again
    reproduced: bool
    #: the norm of each parameter's gradient
    gradients: dict[str, float] = field(default_factory=dict)
    #: False if only the forward pass ran again
    with_backward: bool = True


def why_not(model: nn.Module, log: CallLog) -> str | None:
    """Return why the calls of this step cannot run again, or None if they can."""
    try:
        private.require(private.Capability.RERUN)
    except RefusedError as error:
        return error.fact
    if log.refusal is not None:
        return log.refusal
    if any(map(is_sharded, model.parameters())) and (not is_fsdp2(model) or is_tensor_parallel(model)):
        return "the parameters are spread across ranks"
    if (hook := forward_modifier(model)) is not None:
        return f"the hook {hook!r} changes the forward pass"
    if not log.calls:
        return "the model was not called in this step"
    if log.overflowed:
        return "the step has too many calls"
    if any(not call.ended for call in log.calls):
        return "a call ended with an error"
    if not any(call.gradients for call in log.calls):
        return "no gradient reached an output of the model"
    if any(call.changed_inputs() for call in log.calls):
        return "the program changed an input of the model in place after the call"
    if any(call.module.training != call.training for call in log.calls):
        return "the program changed the mode of the model after the call"
    if uncopied := log.buffers.uncopied():
        return f"the buffer {uncopied[0]!r} changed for the first time"
    return None


def run_again(model: nn.Module, log: CallLog) -> Rerun:
    """Run the calls of a step again. The caller has checked that `why_not` returns None.

    Args:
        model: The model.
        log: The calls of the step.

    Returns:
        What was found.
    """
    body = unwrapped(model)
    if any(map(is_sharded, body.parameters())):
        origin, reproduced = run_forward_again(body, log)
        return Rerun(origin, reproduced, with_backward=False)
    counters = Counters(body)
    try:
        found = _run_again(body, log)
        # A forward pass that counts its calls may need the numbers that it had in the first run.
        if not found.reproduced and counters.count_back():
            found = _run_again(body, log)
        return found
    finally:
        counters.restore()


def _run_again(body: nn.Module, log: CallLog) -> Rerun:
    names = {module: "" if name == "." else name for name, module in walk(body)}
    spans = ModuleSpans(names)
    watch = OperationWatch(spans)
    stand_ins = _StandIns(body, log)
    with ExitStack() as stack:
        stack.enter_context(kept_random_state(log.devices))
        stack.enter_context(without_rigs(names))
        stack.enter_context(spans.watched())
        watch.mark(stand_ins.parameters.values(), "parameter")
        watch.mark(stand_ins.buffers.values(), "buffer")
        again = [_call(call, stand_ins, watch) for call in log.calls]
        outputs = [watch.origin_of(output) for one in again for output in one.outputs]
        origin = min((one for one in outputs if one is not None), key=lambda one: one.order, default=None)
        gradients, bad_gradient = _backward(again, stand_ins, watch)
    norms = {name: float(gradient.float().norm()) for name, gradient in gradients.items()}
    origin = origin or bad_gradient
    # The forward pass may be the same although the backward pass is not, such as that of a square root of zero.
    reproduced = all(one.is_same() for one in again) and (origin is not None or not _has_bad_gradient(body))
    return Rerun(origin, reproduced, norms)


def _has_bad_gradient(body: nn.Module) -> bool:
    """Return True if the first run left a gradient that is not finite."""
    given = [one.grad for one in body.parameters() if one.grad is not None]
    values = [one.coalesce().values() if one.is_sparse else one for one in given]
    return not all(bool(one.isfinite().all()) for one in values)


class _StandIns:
    """Aliases of a model's parameters, and copies of its buffers from before the step, with their names."""

    def __init__(self, body: nn.Module, log: CallLog) -> None:
        self.parameters = {id(one): (name, _detached(one)) for name, one in named_parameters(body)}
        starts = log.buffers.at_start()
        self.buffers: dict[int, tuple[str, Tensor]] = {}
        for name, buffer in body.named_buffers(remove_duplicate=False):
            self.buffers.setdefault(id(buffer), (name, starts.get(name, buffer)))

    def of(self, module: nn.Module) -> dict[str, Tensor]:
        """Return what replaces the parameters and buffers of a module, by their names in it."""
        replaced = {n: self.parameters[id(p)][1] for n, p in module.named_parameters(remove_duplicate=False)}
        return replaced | {n: self.buffers[id(b)][1] for n, b in module.named_buffers(remove_duplicate=False)}


@dataclass(frozen=True, slots=True)
class _SecondCall:
    """A call that ran again, with its arguments and the outputs to which a gradient can flow."""

    first: ModelCall
    inputs: list[Tensor]
    outputs: list[Tensor]

    def is_same(self) -> bool:
        """Return True if each output has the same values as in the first run."""
        samples = [sample(output) for output in self.outputs]
        return len(samples) == len(self.first.samples) and all(map(same_values, samples, self.first.samples))


def _call(call: ModelCall, stand_ins: _StandIns, watch: OperationWatch) -> _SecondCall:
    """Run a call again."""
    watch.mark(call.named_inputs(), "input")
    arguments, keywords = map_leaves((call.arguments, call.keywords), _detached)
    output: Any = None

    def take(module: nn.Module, args: Any, result: Any) -> None:
        nonlocal output
        output = result

    # The hook stands where the first run's hook stood, so a later hook that replaces the output makes no difference.
    handle = call.module.register_forward_hook(take)
    try:
        call.random.restore()
        with call.modes.applied(), watch:
            functional_call(call.module, stand_ins.of(call.module), arguments, keywords, tie_weights=False)
    finally:
        handle.remove()
    inputs = [one for one in leaves((arguments, keywords)) if one.requires_grad]
    return _SecondCall(call, inputs, differentiable(output))


def _detached(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_(tensor.requires_grad)


def _backward(
    calls: Sequence[_SecondCall], stand_ins: _StandIns, watch: OperationWatch
) -> tuple[dict[str, Tensor], Origin | None]:
    """Run the backward passes again. Return the gradient of each parameter, and where the first bad one came from.

    A gradient flows from the last call to the first one, and the calls are not connected. So the first call in this
    order with a bad gradient has the origin.
    """
    wanted = [(name, alias) for name, alias in stand_ins.parameters.values() if alias.requires_grad]
    total: dict[str, Tensor] = {}
    origin: Origin | None = None
    for task in sorted({task for call in calls for task in call.first.gradients}):
        for call in reversed(calls):
            given = call.first.gradients.get(task, {})
            pairs = [(call.outputs[number], one) for number, one in given.items() if number < len(call.outputs)]
            if not pairs:
                continue
            found = _gradients(pairs, [*call.inputs, *(alias for _, alias in wanted)], watch)
            for (name, _), gradient in zip(wanted, found[len(call.inputs) :], strict=True):
                if gradient is not None:
                    total[name] = total[name] + gradient if name in total else gradient
            reached = [*(gradient for _, gradient in pairs), *(one for one in found if one is not None)]
            bad = [one for gradient in reached if (one := watch.origin_of(gradient)) is not None]
            origin = origin or min(bad, key=lambda one: one.order, default=None)
    return total, origin


def _gradients(
    pairs: Sequence[tuple[Tensor, Tensor]], wanted: Sequence[Tensor], watch: OperationWatch
) -> Sequence[Tensor | None]:
    """Return the gradients of some tensors, for outputs with the gradients that they had in the first run.

    An output may also be used inside the model, like the logits of a model that returns its loss. So the pass begins
    with zeros, and a hook on each output puts in the gradient that the output had in the first run.
    """
    handles = [output.register_hook(partial(watch.put_in, gradient)) for output, gradient in pairs]
    try:
        with watch:
            outputs = [output for output, _ in pairs]
            zeros = [torch.zeros_like(output) for output in outputs]
            return torch.autograd.grad(outputs, wanted, zeros, allow_unused=True, retain_graph=True)
    finally:
        for handle in handles:
            handle.remove()
