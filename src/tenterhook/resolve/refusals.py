"""Refuse hooks that are not supported on this model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenterhook.actions import Definition
from tenterhook.errors import RefusedError
from tenterhook.plan import POINTS, TRAINING, Hook
from tenterhook.resolve.model_view import ModelView
from tenterhook.resolve.targets import Target, is_sharded
from tenterhook.torch_internals import Capability, require
from tenterhook.torch_internals.code_owner import owner_of


def check_action(hook: Hook, definition: Definition[...], params: Mapping[str, Any]) -> None:
    if hook.point.side == "state" and not definition.plain:
        what = hook.point.signal.partition(";")[0]
        at = "save_post" if hook.at.startswith("save") else "load_pre"
        raise RefusedError(
            f"the action {definition.name!r} takes a tensor, but the value at this point is {what}",
            remedy=f'to reach the tensors in a state dict, pass a function that takes the dict: at="{at}", do=fn',
        )
    if hook.at not in definition.at:
        observes_only = definition.modifies and not hook.point.modifies
        why = "changes the value, but this point only observes" if observes_only else "is not available at this point"
        raise RefusedError(f"the action {definition.name!r} {why}", remedy=_available_point(hook, definition))
    if hook.when.phase == "eval" and hook.at in TRAINING:
        raise RefusedError(
            'phase="eval" selects no signal, because this point exists only in training',
            remedy="remove phase: the hook fires in every step, whether the model is in training or evaluation mode",
        )
    if params.get("over") == "hook" and hook.at != "grad_final":
        raise RefusedError(
            'over="hook" needs the gradients of all targets at once',
            remedy="use grad_final, where all gradients are available",
        )


def _available_point(hook: Hook, definition: Definition[...]) -> str:
    if hook.point.on == ("optimizer",) and "grad_final" in definition.at:
        return 'to act before the optimizer step, write at="grad_final" and select parameters: on="**"'
    same = [at for at in definition.at if POINTS[at].on == hook.point.on] or definition.at
    return f"use one of the action's points: {', '.join(same)}"


def check_over(hook: Hook, params: Mapping[str, Any], targets: tuple[Target, ...], view: ModelView) -> None:
    if params.get("over") != "hook" or len(view.optimizers) < 2:
        return
    parameters = [t.parameter() for t in targets]
    holders = [names for p in parameters if (names := view.held_by.get(id(p)))]
    if holders and not set.intersection(*holders):  # no optimizer holds all of them
        spanned = sorted(set.union(*holders))
        raise RefusedError(
            f'over="hook" spans {len(spanned)} optimizers, which step one after another',
            remedy=f"write one hook for each optimizer: {', '.join(spanned)}",
        )


def check_torch(hook: Hook, definition: Definition[...], view: ModelView) -> None:
    """Refuse a hook that needs a private attribute of torch which this version does not have."""
    point = hook.point
    if point.side == "backward":
        require(Capability.BACKWARD)
    if point.side == "backward" and "parameter" not in point.on:
        require(Capability.MODULE_GRADS)
    if hook.at == "grad_input":
        require(Capability.GRAD_INPUT)
    if "tap" in point.on:
        require(Capability.TAPS)
    if owner_of(definition.fn) != "tenterhook" and point.side != "state":
        require(Capability.FUNCTIONS)
    if not view.optimizers:
        require(Capability.NO_OPTIMIZER)
    if view.targets.compiled:
        require(Capability.COMPILED)
    if hook.at in ("grad", "grad_accumulated") and view.fsdp2:
        require(Capability.GATHERED)


def check_model(hook: Hook, definition: Definition[...], view: ModelView) -> None:
    point = hook.point
    if point.side == "step" and not view.optimizers:
        instead = ", or use grad_accumulated" if hook.at == "grad_final" else ""
        raise RefusedError(
            "this point needs an optimizer, but none was passed", remedy=f"pass optimizer=optimizer{instead}"
        )
    if view.targets.compiled and "tap" in point.on:
        raise RefusedError(
            "the model is compiled, but taps do not exist in compiled code",
            remedy="use output or grad_output on a module, or attach to the uncompiled model",
        )
    if view.fsdp1 and "parameter" in point.on:
        raise RefusedError(
            "FullyShardedDataParallel replaces the parameters with parts of a flat tensor",
            remedy="shard the model with torch.distributed.fsdp.fully_shard",
        )
    if view.splits_backward and point.side == "backward":
        raise RefusedError(
            "a zero-bubble schedule splits each backward pass into two parts, so this point is not available",
            remedy="use grad_final, or a schedule with whole backward passes (GPipe, 1F1B or interleaved 1F1B)",
        )
    if hook.at in ("value", "value_grad") and hook.expect is not None:
        raise RefusedError("taps are found when they run, so their number is not known yet", remedy="remove expect")


def check_compiled(hook: Hook, targets: tuple[Target, ...], view: ModelView) -> None:
    if hook.at != "grad_input" or not view.targets.compiled:
        return
    inside = next((target for target in targets if view.targets.in_graph(target)), None)
    if inside is not None:
        raise RefusedError(
            "compiled code calls this module, so the contribution of one call to the gradient of its input is not "
            "available",
            target=inside.name,
            remedy="use grad_output on the previous module, or attach to the uncompiled model",
        )


def check_sharded(hook: Hook, definition: Definition[...], targets: tuple[Target, ...], view: ModelView) -> None:
    if hook.at in ("grad", "grad_accumulated"):
        if view.fsdp2:
            _check_gathered(hook, view)
            return
        if definition.modifies and definition.two_phase:
            raise RefusedError(
                f"{definition.name!r} needs whole tensors, but each rank has only its shards during the backward pass",
                remedy="use grad_final",
            )
    alone = not (definition.elementwise or definition.two_phase or definition.across_ranks)
    if alone and any(is_sharded(t.parameter()) for t in targets if t.kind == "parameter"):
        raise RefusedError(
            f"{definition.name!r} is neither elementwise nor two-phase, but the parameters are sharded over ranks",
            remedy="register the action with elementwise=True if each element of the result depends only on the same "
            "element of the value",
        )
    inside = hook.point.side != "state" and ("module" in hook.point.on or "tap" in hook.point.on)
    if view.tensor_parallel and inside and not definition.elementwise:
        raise RefusedError(
            f"{definition.name!r} is not elementwise, but with tensor parallelism a module may compute with shards",
            remedy="use a parameter point, or register the action with elementwise=True",
        )


def _check_gathered(hook: Hook, view: ModelView) -> None:
    """Refuse the two cases in which this rank does not have the whole gradient of a parameter that FSDP2 gathers."""
    if view.tensor_parallel:
        raise RefusedError(
            "when FSDP2 and tensor parallelism are combined, this rank has only a shard of the gradient",
            remedy="use grad_final, which is the reduced gradient",
        )
    if hook.at == "grad_accumulated" and view.reduces_in_other_dtype:
        raise RefusedError(
            "FSDP2 accumulates the gradients of this rank in a different dtype, and hooks cannot read the sums",
            remedy="use grad or grad_final, or use the same dtype for gradients and their reduction",
        )
