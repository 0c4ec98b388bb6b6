"""Refuse hooks that cannot work as written on this model."""

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
            f"the action {definition.name!r} is not available at this point",
            remedy=f"use one of its points: {', '.join(definition.at)}",
        )
    if params.get("over") == "hook" and hook.at != "grad_final":
        raise RefusedError(
            'over="hook" needs the gradients of all targets at once',
            remedy="use grad_final, where all gradients are available",
        )
    if hook.point.side == "state" and not definition.plain:
        raise RefusedError("the value is a state_dict, not a tensor", remedy="pass a function of the value: do=fn")


def check_over(hook: Hook, params: Mapping[str, Any], targets: tuple[Target, ...], view: ModelView) -> None:
    if params.get("over") != "hook" or len(view.optimizers) < 2:
        return
    held = {view.optimizer_of.get(id(t.parameter())) for t in targets} - {None}
    if len(held) > 1:
        raise RefusedError(
            f'over="hook" spans {len(held)} optimizers, which step one after the other',
            remedy=f"write one hook for each optimizer: {', '.join(sorted(map(str, held)))}",
        )


def check_model(hook: Hook, definition: Definition, view: ModelView) -> None:
    point = hook.point
    if point.side == "step" and not view.optimizers:
        instead = ", or use grad_accumulated" if hook.at == "grad_final" else ""
        raise RefusedError(
            "this point needs an optimizer, and none was passed", remedy=f"pass optimizer=optimizer{instead}"
        )
    if view.targets.compiled and "tap" in point.on:
        raise RefusedError(
            "the model is compiled, and taps do not exist in compiled code",
            remedy="use output or grad_output of a module, or attach to the uncompiled model",
        )
    if view.fsdp1 and "parameter" in point.on:
        raise RefusedError(
            "FullyShardedDataParallel replaces the parameters by parts of a flat tensor",
            remedy="shard the model with torch.distributed.fsdp.fully_shard",
        )
    if view.splits_backward and point.side == "backward":
        raise RefusedError(
            "a zero-bubble schedule splits each backward into two parts, so this point is not available",
            remedy="use grad_final, or a schedule that does not split the backward: GPipe, 1F1B, interleaved 1F1B",
        )
    if hook.at in ("value", "value_grad") and hook.expect is not None:
        raise RefusedError("taps are found when they run, so their number is not known yet", remedy="remove expect")


def check_compiled(hook: Hook, targets: tuple[Target, ...], view: ModelView) -> None:
    if hook.at != "grad_input" or not view.targets.compiled:
        return
    inside = next((target for target in targets if view.targets.in_graph(target)), None)
    if inside is not None:
        raise RefusedError(
            "compiled code calls this module, and the contribution of one call to the gradient of its input is not "
            "available there",
            target=inside.name,
            remedy="use grad_output of the previous module, or attach to the uncompiled model",
        )


def check_sharded(hook: Hook, definition: Definition, targets: tuple[Target, ...], view: ModelView) -> None:
    if hook.at in ("grad", "grad_accumulated"):
        if view.fsdp2:
            _check_gathered(hook, view)
            return
        if definition.modifies and definition.two_phase:
            raise RefusedError(
                f"{definition.name!r} needs whole tensors, but in the backward each rank has only its shards",
                remedy="use grad_final",
            )
    alone = not (definition.elementwise or definition.two_phase)
    if alone and any(is_sharded(t.parameter()) for t in targets if t.kind == "parameter"):
        raise RefusedError(
            f"{definition.name!r} is neither elementwise nor two-phase, and the parameters are sharded over ranks",
            remedy="register it with elementwise=True if each element of the result depends on one element only",
        )
    inside = hook.point.side != "state" and ("module" in hook.point.on or "tap" in hook.point.on)
    if view.tensor_parallel and inside and not definition.elementwise:
        raise RefusedError(
            f"{definition.name!r} is not elementwise, and with tensor parallelism a module may compute with shards",
            remedy="use a point of parameters, or register it with elementwise=True",
        )


def _check_gathered(hook: Hook, view: ModelView) -> None:
    """Refuse the two cases in which FSDP2 does not give this rank the whole gradient of a gathered parameter."""
    if view.tensor_parallel:
        raise RefusedError(
            "with FSDP2 and tensor parallelism together, this rank has only a shard of the gradient",
            remedy="use grad_final, the reduced gradient",
        )
    if hook.at == "grad_accumulated" and view.reduces_in_other_dtype:
        raise RefusedError(
            "FSDP2 accumulates the gradients of this rank in another dtype, where hooks cannot read them",
            remedy="use grad or grad_final, or use the same dtype for gradients and their reduction",
        )
