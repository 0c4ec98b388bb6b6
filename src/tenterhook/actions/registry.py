"""Define the registry, which maps action names to code.

Only the program adds actions to a registry. Plans and checkpoints refer to actions by name and never contain code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, Protocol, TypedDict, Unpack, overload

from torch import Tensor

from tenterhook.actions.context import Context
from tenterhook.actions.definition import MODIFIABLE_POINTS, TENSOR_POINTS, Definition, Merge, P, Partial
from tenterhook.errors import ActionError, nearest
from tenterhook.plan import PointName, callable_name, callable_place


class Registry:
    """A collection of actions, each registered under a name.

    Every registry also provides the built-in actions. By default, `@th.action` adds an action to the registry of the
    process. To keep actions separate, for example in tests, pass your own registry to `@th.action(registry=...)` and to
    `th.attach(actions=...)`.

    Example:
        >>> import tenterhook as th
        >>> registry = th.Registry()
        >>> @th.action("half", registry=registry, modifies=True)
        ... def half(x):
        ...     return x / 2
        >>> registry.get("half").name, registry.get("scale").name
        ('half', 'scale')
    """

    def __init__(self) -> None:
        self._definitions: dict[str, Definition[...]] = {}

    def add(self, definition: Definition[P]) -> Definition[P]:
        """Add an action under its name.

        The action replaces a registered action of the same name if it has the same code or a higher `version`.

        Args:
            definition: The action that `@th.action` returned.

        Returns:
            The same `definition`.

        Raises:
            ActionError: A different action with this name and the same or a higher version is already registered.
        """
        have = self.find(definition.name)
        if have is not None and have.fingerprint != definition.fingerprint and have.version >= definition.version:
            raise ActionError(
                f"another action {definition.name!r} is already registered at {callable_place(have.fn)}",
                remedy="give the new action a different name"
                if have is BUILTIN.find(have.name)
                else f"give the new action a different name, or version={have.version + 1} to replace the existing one",
            )
        self._definitions[definition.name] = definition
        return definition

    def find(self, name: str) -> Definition[...] | None:
        """Find an action by its name.

        Args:
            name: The name of the action.

        Returns:
            The action, or None if no action with this name is registered.
        """
        found = self._definitions.get(name)
        return found if found is not None or self is BUILTIN else BUILTIN.find(name)

    def names(self) -> list[str]:
        """Return the sorted names of all actions, including the built-in actions.

        Returns:
            The names.
        """
        return sorted({*BUILTIN._definitions, *self._definitions})

    def get(self, name: str) -> Definition[...]:
        """Get an action by its name, or raise an error.

        Args:
            name: The name of the action.

        Returns:
            The action.

        Raises:
            ActionError: No action with this name is registered. The error suggests the action with the most similar
                name.
        """
        found = self.find(name)
        if found is not None:
            return found
        close = nearest(name, self.names())
        raise ActionError(
            f"the action {name!r} is not registered" + (f"; the nearest is {close[0]!r}" if close else ""),
            remedy=(f"write {close[0]!r}; for an action of your own, " if close else "")
            + f'first import the module that contains @th.action("{name}"), or pass --actions MODULE to the command. '
            "A plan never imports code",
        )


BUILTIN = Registry()
#: the default registry of the process, to which @th.action adds actions
DEFAULT = Registry()


class Contract(TypedDict, total=False):
    """Lists the keyword arguments of `@th.action`."""

    at: PointName | Sequence[PointName]
    modifies: bool
    elementwise: bool
    needs_value: bool
    version: int
    measure: Callable[..., Mapping[str, Tensor]]
    partials: Mapping[str, Merge | Partial]
    state: Mapping[str, float]
    trigger: bool


class Register(Protocol):
    """The decorator that `action(...)` returns. The parameters of the action are those after the value and `ctx`."""

    @overload
    def __call__(self, fn: Callable[Concatenate[Any, Context, P], Any], /) -> Definition[P]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Any, dict[str, Tensor], P], Any], /) -> Definition[P]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Any, P], Any], /) -> Definition[P]: ...


@overload
def action(name: str | None = None, *, registry: Registry | None = None, **contract: Unpack[Contract]) -> Register: ...
@overload
def action(
    name: Callable[Concatenate[Any, Context, P], Any],
    *,
    registry: Registry | None = None,
    **contract: Unpack[Contract],
) -> Definition[P]: ...
@overload
def action(
    name: Callable[Concatenate[Any, P], Any], *, registry: Registry | None = None, **contract: Unpack[Contract]
) -> Definition[P]: ...


def action(
    name: str | Callable[..., Any] | None = None, *, registry: Registry | None = None, **contract: Unpack[Contract]
) -> Any:
    """Register a function as an action under a name that plans and checkpoints can refer to.

    The function is `fn(value)` or `fn(value, ctx)`, where `ctx` is a `Context`. Parameters of the action have type
    annotations. They are keyword-only, or follow a slash: `fn(value, ctx, /, limit: float)`. A parameter of type
    `Tensor` is passed by name: the plan stores the name, and `th.attach(tensors=...)` supplies the tensor.

    A two-phase action is registered with `measure` and `partials`. `measure(value)` returns partial results, which
    tenterhook merges. If the action modifies values, the function is `fn(value, ctx)` and reads `ctx.merged`. If the
    action observes values, the function is `fn(merged, state)`. Such a function runs once at the end of each step and
    returns a dict of tensors with one row for each target.

    Args:
        name: Name of the action. The default is the name of the function.
        registry: Registry to add the action to. The default is the registry of the process.
        **contract: Any of these keyword arguments:

            - `at`: the point or points at which the action is allowed. The default is all tensor points or, if
              `modifies` is True, all points whose value can be modified.
            - `modifies`: True if the returned tensor replaces the value.
            - `elementwise`: True if each element of the result depends only on the same element of the value. Such an
              action may run on one shard of a tensor.
            - `needs_value`: True if the action reads `ctx.value` at a gradient point of a module. The value is then
              kept until the backward pass, which costs memory.
            - `version`: version of the code. An action with a higher version replaces the registered action, and a
              checkpoint from a different version is refused.
            - `measure`: function that measures a value and returns a dict of partial results.
            - `partials`: how each partial result is merged: `"sum"`, `"max"`, `"norm"` or a `Partial`.
            - `state`: dict of names and initial values of the numbers that the action stores for each target. The
              numbers are saved in checkpoints.
            - `trigger`: True if the action is a two-phase observer whose result contains `"trip"`. A trip activates
              hooks with `When(after_trip=...)`, and a flight recorder writes the most recent steps to a folder.

    Returns:
        The action, or a decorator that returns it. Call the action with its parameters and pass the result to
        `Hook(do=...)`.

    Raises:
        ActionError: A keyword argument, a point, or the signature of the function is invalid, or the name is in use.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> @th.action("soft_clip", registry=th.Registry(), modifies=True, elementwise=True)
        ... def soft_clip(x, *, limit: float = 1.0):
        ...     return limit * torch.tanh(x / limit)
        >>> soft_clip(limit=2.0)
        Action(name='soft_clip', params={'limit': 2.0})
    """
    for word in contract:
        if word not in Contract.__annotations__:
            close = nearest(word, list(Contract.__annotations__))
            raise ActionError(
                f"the action {name if isinstance(name, str) else ''!r} does not accept {word}="
                + (f"; the nearest is {close[0]}=" if close else ""),
                remedy=f"use one of {', '.join(Contract.__annotations__)}",
            )

    def register(fn: Callable[..., Any]) -> Definition[...]:
        named = name if isinstance(name, str) else callable_name(fn).rpartition(".")[2]
        modifies = contract.get("modifies", False)
        at = contract.get("at") or (MODIFIABLE_POINTS if modifies else TENSOR_POINTS)
        settings: dict[str, Any] = {**contract, "at": (at,) if isinstance(at, str) else at, "modifies": modifies}
        return (registry or DEFAULT).add(Definition(named, fn, **settings))

    return register(name) if callable(name) else register
