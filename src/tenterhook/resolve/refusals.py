"""Refusals: hooks that cannot act as written on this model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenterhook.actions import Definition
from tenterhook.errors import RefusedError
from tenterhook.plan import Hook
from tenterhook.resolve.model_view import ModelView
from tenterhook.resolve.targets import Target, is_sharded


def check_action(hook: Hook, definition: Definition, params: Mapping[str, Any]) -> None:
    if hook.at not in definition.at:
        raise RefusedError(
            f"the action {definition.name!r} does not fit this point",
            remedy=f"it stands at {', '.join(definition.at)}",
        )
    if params.get("over") == "hook" and hook.at != "grad_final":
        raise RefusedError(
            'over="hook" needs the gradients of all targets at once', remedy="put it at grad_final, where they are"
        )
    if hook.point.side == "state" and not definition.plain:
        raise RefusedError("a state_dict is not a tensor", remedy="give a function of the value: do=fn")


def check_over(hook: Hook, params: Mapping[str, Any], targets: tuple[Target, ...], view: ModelView) -> None:
    if params.get("over") != "hook" or len(view.optimizers) < 2:
        return
    held = {view.optimizer_of.get(id(t.parameter())) for t in targets} - {None}
    if len(held) > 1:
        raise RefusedError(
            f'over="hook" spans {len(held)} optimizers, which step one after the other',
            remedy=f"give each its own hook: {', '.join(sorted(map(str, held)))}",
        )


def check_model(hook: Hook, definition: Definition, view: ModelView) -> None:
    point = hook.point
    if point.side == "step" and not view.optimizers:
        instead = ", or use grad_accumulated" if hook.at == "grad_final" else ""
        raise RefusedError(
            "there is no optimizer, so there is no such moment", remedy=f"give optimizer=optimizer{instead}"
        )
    if view.targets.compiled and "tap" in point.on:
        raise RefusedError(
            "the model is compiled, and a tap cannot be found in compiled code",
            remedy="use output or grad_output of a module, or attach to the plain model",
        )
    if view.fsdp1 and "parameter" in point.on:
        raise RefusedError(
            "FullyShardedDataParallel keeps parts of a flat tensor in place of parameters",
            remedy="shard the model with torch.distributed.fsdp.fully_shard",
        )
    if view.splits_backward and point.side == "backward":
        raise RefusedError(
            "a zero-bubble schedule runs each backward in two halves, and has no such moment",
            remedy="use grad_final, or a schedule that runs whole backwards: GPipe, 1F1B, interleaved 1F1B",
        )
    if hook.at in ("value", "value_grad") and hook.expect is not None:
        raise RefusedError("taps appear as they run, so their number is not known yet", remedy="leave expect out")


def check_compiled(hook: Hook, targets: tuple[Target, ...], view: ModelView) -> None:
    if hook.at != "grad_input" or not view.targets.compiled:
        return
    inside = next((target for target in targets if view.targets.in_graph(target)), None)
    if inside is not None:
        raise RefusedError(
            "compiled code calls this module, and what a call adds to its input's gradient cannot be told apart there",
            target=inside.name,
            remedy="use grad_output of the module before, or attach to the plain model",
        )


def check_sharded(hook: Hook, definition: Definition, targets: tuple[Target, ...], view: ModelView) -> None:
    if hook.at in ("grad", "grad_accumulated"):
        if view.fsdp2:
            _check_gathered(hook, view)
            return
        if definition.modifies and definition.two_phase:
            raise RefusedError(
                f"{definition.name!r} needs the whole of tensors that are spread over ranks, within a backward",
                remedy="put it at grad_final",
            )
    alone = not (definition.elementwise or definition.two_phase)
    if alone and any(is_sharded(t.parameter()) for t in targets if t.kind == "parameter"):
        raise RefusedError(
            f"{definition.name!r} is neither elementwise nor two-phase, and the parameters are sharded over ranks",
            remedy="@th.action(..., elementwise=True) if each element depends on itself alone",
        )
    inside = hook.point.side != "state" and ("module" in hook.point.on or "tap" in hook.point.on)
    if view.tensor_parallel and inside and not definition.elementwise:
        raise RefusedError(
            f"{definition.name!r} is not elementwise, and with tensor parallelism a module may have parts of values",
            remedy="use a point of parameters, or @th.action(..., elementwise=True)",
        )


def _check_gathered(hook: Hook, view: ModelView) -> None:
    """FSDP2 puts a parameter together for the backward: this rank's gradient of it is whole, with two exceptions."""
    if view.tensor_parallel:
        raise RefusedError(
            "with FSDP2 and tensor parallelism together, this rank's gradient is a part of a part",
            remedy="use grad_final, the reduced gradient",
        )
    if hook.at == "grad_accumulated" and view.reduces_in_other_dtype:
        raise RefusedError(
            "FSDP2 sums this rank's gradients in another dtype, out of sight",
            remedy="use grad, of each backward, or grad_final; or one dtype for gradients and their reduction",
        )
