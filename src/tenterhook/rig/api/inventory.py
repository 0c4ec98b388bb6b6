"""List every hook on a model, including hooks that other code registered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from tenterhook import torch_internals as private
from tenterhook.plan import callable_name, callable_place
from tenterhook.resolve.targets import Optimizers, named_optimizers, targets_of, walk
from tenterhook.rig.rig import rigs_on
from tenterhook.rig.root_hooks import RootDispatch
from tenterhook.rig.runtime.registration import Dispatch
from tenterhook.rig.step.optimizer_step import OptimizerStep
from tenterhook.text_table import TextTable
from tenterhook.torch_internals.code_owner import owner_of


@dataclass(frozen=True, slots=True)
class Found:
    """A hook that is registered on a module, a parameter or an optimizer.

    Args:
        target: Name of the module, the parameter or the optimizer.
        registered_by: The PyTorch method that registered the hook.
        function: Name of the registered function.
        place: File and line of the function.
        owner: The library that registered the hook (DDP, FSDP, accelerate, wandb, ...), or the program.
        ours: Ids of the tenterhook hooks that the function calls, or the function's purpose, such as `the rig's root`.
            The tuple is empty if tenterhook did not register the function.
    """

    target: str
    registered_by: str
    function: str
    place: str
    owner: str
    ours: tuple[str, ...] = ()


class Inventory(Sequence[Found]):
    """A sequence of the hooks that `inventory` found. It prints as a table.

    Args:
        found: The hooks.
    """

    def __init__(self, found: Sequence[Found]) -> None:
        self._found = list(found)

    def __getitem__(self, index: Any) -> Any:
        return self._found[index]

    def __len__(self) -> int:
        return len(self._found)

    @property
    def foreign(self) -> list[Found]:
        """Return the hooks that tenterhook did not register."""
        return [f for f in self._found if not f.ours]

    def _table(self) -> TextTable:
        rows = [[f.target, f.registered_by, ", ".join(f.ours) or f.function, f.owner, f.place] for f in self._found]
        return TextTable("", ("target", "registered by", "hook", "owner", "place"), rows)

    def __repr__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()


def inventory(model: nn.Module, *, optimizer: Optimizers = None) -> Inventory:
    """List every hook on the modules and parameters of a model, and on optimizers.

    Args:
        model: The model.
        optimizer: An optimizer, or a list or dict of optimizers, whose hooks are also listed.

    Returns:
        A sequence that prints as a table. The `foreign` property lists the hooks that tenterhook did not register.

    Raises:
        ResolveError: `optimizer` contains an object that is not an optimizer.
        RefusedError: This version of torch stores its hooks in a different way.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> model = torch.nn.Linear(2, 1)
        >>> _ = model.register_forward_hook(lambda module, args, output: None)
        >>> [(found.target, found.registered_by) for found in th.inventory(model)]
        [('.', 'register_forward_hook')]
    """
    private.require(private.Capability.INVENTORY)
    ours = dict(_ours(model))
    optimizers = named_optimizers(optimizer)
    found: list[Found] = []
    for name, module in walk(model):
        for slot, by in private.registered_by(module).items():
            found += [_found(name, by, fn, key, ours) for key, fn in private.hooks_in(module, slot).items()]
    for name, target in targets_of(model, {}).parameters.items():
        parameter = target.parameter()
        for slot, by in zip(private.HOOK_SLOTS, ("register_hook", "register_post_accumulate_grad_hook"), strict=True):
            hooks = private.tensor_hooks(parameter, slot) if parameter is not None else None
            found += [_found(name, by, fn, key, ours) for key, fn in (hooks or {}).items()]
    for name, one in optimizers.items():
        for slot, by in private.OPTIMIZER_SLOTS.items():
            found += [_found(name, by, fn, key, ours) for key, fn in private.optimizer_hooks(one, slot).items()]
    return Inventory(found)


def _ours(model: nn.Module) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the handle id of each tenterhook registration, with the ids of its hooks.

    Handle ids are unique within a process.
    """
    for rig in rigs_on(model):
        for handle in rig._calls.handles:
            yield handle.id, ("the rig's root",)
        for registration in rig._installer.registrations:
            if registration.handle is not None:
                yield registration.handle.id, tuple(s.hook for s in registration.sites if s.installed)


def _found(target: str, by: str, fn: Any, key: int, ours: dict[int, tuple[str, ...]]) -> Found:
    fn = getattr(fn, "hook", fn)
    if isinstance(fn, RootDispatch) and fn.root is not None:
        return Found(target, by, "root", "tenterhook", "tenterhook", ("the rig's root",))
    if isinstance(getattr(fn, "__self__", None), OptimizerStep):
        return Found(target, by, "step", "tenterhook", "tenterhook", ("the rig's step",))
    if key in ours or isinstance(fn, Dispatch):
        return Found(target, by, "tenterhook", "tenterhook", "tenterhook", ours.get(key) or ("tenterhook, inert",))
    inner = getattr(fn, "hook", fn)  # PyTorch wraps some hooks in an object
    return Found(target, by, callable_name(inner), callable_place(inner), owner_of(inner))
