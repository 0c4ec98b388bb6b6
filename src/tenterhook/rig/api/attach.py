"""Attach a plan: resolve it against the model, check that its ids are free, and install it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from tenterhook.actions import DEFAULT, Registry
from tenterhook.errors import AttachedError, ResolveError
from tenterhook.plan import Hook, Plan
from tenterhook.record import Sinks
from tenterhook.resolve.agreement import resolve_on_all_ranks
from tenterhook.resolve.grouping import Group, find_group
from tenterhook.resolve.model_view import ModelView
from tenterhook.resolve.resolution import resolve
from tenterhook.resolve.targets import Optimizers, named_optimizers
from tenterhook.rig.installer import gc_paused
from tenterhook.rig.rig import Rig, rigs_on
from tenterhook.torch_internals import Capability, require


def attach(
    model: nn.Module,
    plan: Plan | Hook | Iterable[Hook],
    *,
    optimizer: Optimizers = None,
    clock: str | Optimizer | None = None,
    sinks: Sinks = (),
    actions: Registry = DEFAULT,
    tensors: Mapping[str, Tensor] | None = None,
    replace: bool = False,
    group: Group | None = None,
    patience: float | None = None,
) -> Rig:
    """Install a plan on a model.

    The whole plan is checked before anything is installed. If any hook does not fit the model, nothing is installed. In
    a distributed run, call this function on every rank with the same plan.

    Args:
        model: The model.
        plan: A plan, a hook, or several hooks.
        optimizer: The optimizer that trains the model, or a list or dict of several optimizers. The points
            `grad_final`, `update`, `step_pre` and `step_post` require an optimizer.
        clock: The optimizer whose steps are counted, or its name. The default is the last of the given optimizers.
        sinks: Sinks for the recorded values: a function `log(dict, step)`, a tracker, a `Store`, a `Flight`, or several
            of these.
        actions: The registry in which named actions are looked up.
        tensors: Tensor parameters of actions, by their names in the plan.
        replace: If True, replace hooks on the model that have the same ids. If False, raise an error for such hooks.
        group: The ranks that train the model, as a process group or a device mesh. By default, these are the ranks of
            the meshes of its parameters and of its DDP modules, or all ranks if there are none.
        patience: Number of seconds to wait for the other ranks, in this call and in each step. The default is 60.

    Returns:
        The rig, which stays on the model until `rig.detach()` is called.

    Raises:
        ResolveError: The plan does not fit the model. The subclass of the error indicates the reason.
        ActionError: An action is unknown or its parameters are invalid.
        AttachedError: The model already has a hook with the same id, and `replace` is False.
        RanksError: The ranks have different plans, or a rank is missing.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> model = torch.nn.Linear(2, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> clip = th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(1.0))
        >>> rig = th.attach(model, th.Plan([clip]), optimizer=optimizer)
        >>> model(torch.ones(8, 2)).sum().backward()
        >>> optimizer.step()
        >>> rig.ledger["clip"].fired
        2
    """
    check_module(model)
    if tensors is not None and not isinstance(tensors, Mapping):
        raise ResolveError(
            f"tensors= must be a dict, but its type is {type(tensors).__name__}",
            remedy='pass each tensor with its name in the plan: tensors={"direction": tensor}',
        )
    if isinstance(plan, str | Path):
        raise ResolveError(
            f"the plan must be a Plan or hooks, but it is the text {str(plan)!r}",
            remedy="load the file with th.Plan.load(path)",
        )
    plan = plan if isinstance(plan, Plan) else Plan([plan] if isinstance(plan, Hook) else plan)
    optimizers = named_optimizers(optimizer)
    clock = clock_name(optimizers, clock)
    with gc_paused():
        members = find_group("attach", model, group, patience=patience)
        view = ModelView(model, optimizers, ranks=members.size)
        find = partial(resolve, plan.hooks, view, actions=actions, tensors=tensors or {})
        resolution = resolve_on_all_ranks(members, "attach", find)
    free_ids(model, plan, replace=replace)
    return Rig(model, plan, resolution, group=members, clock=clock, sinks=sinks, actions=actions, tensors=tensors)


def check_module(model: object, call: str = "th.attach(model, plan, optimizer=...)") -> None:
    """Raise an error if the model is not an `nn.Module`. The remedy shows the right call."""
    if not isinstance(model, nn.Module):
        raise ResolveError(
            f"the model must be a module, but its type is {type(model).__name__}",
            remedy=f"write {call}",
        )
    lazy = next((name for name, parameter in model.named_parameters() if is_lazy(parameter)), None)
    if lazy is not None:
        raise ResolveError(
            f"the parameter {lazy!r} has no shape yet, because a lazy module creates it in the first forward pass",
            remedy="call the model once, create the optimizer, then attach",
        )


def free_ids(model: nn.Module, plan: Plan, *, replace: bool) -> None:
    """Remove from the model any hooks with the plan's ids. If `replace` is False, raise an error instead."""
    wanted = {hook.id for hook in plan}
    if rigs_on(model):
        require(Capability.SEVERAL_RIGS)
    for rig in rigs_on(model):
        for id in wanted.intersection(rig.ledger):
            if not replace:
                raise AttachedError(
                    "the model already has a hook with this id",
                    hook=id,
                    remedy="pass replace=True to replace it, or call th.detach(model) to remove all hooks",
                )
            rig.remove(id)


def clock_name(optimizers: Mapping[str, Optimizer], clock: str | Optimizer | None) -> str | None:
    """Return the name of the optimizer whose steps are counted: the clock if given, else the last optimizer."""
    if clock is None:
        return next(reversed(list(optimizers)), None)
    for name, optimizer in optimizers.items():
        if clock is optimizer or clock in (name, name.removeprefix("optimizer.")):
            return name
    raise ResolveError(
        f"clock={clock!r} is not one of the optimizers",
        remedy=f"name one of {', '.join(map(repr, optimizers)) or 'the optimizers, and pass them as optimizer='}",
    )
