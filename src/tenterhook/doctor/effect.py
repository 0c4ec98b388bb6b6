"""Implement `effect`: run one backward pass with a rig's hooks and again without them, and compare the results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from tenterhook import ranks
from tenterhook.doctor.patch.events import mover
from tenterhook.doctor.rehearsal import rehearsal, silenced, step
from tenterhook.doctor.rules.no_effect import SCALE_FREE
from tenterhook.drawing import bar
from tenterhook.errors import RefusedError
from tenterhook.resolve.targets import targets_of
from tenterhook.rig import Rig
from tenterhook.text_table import TextTable

#: the stages at which the two runs are compared, in the order in which a change passes through them
STAGES = ("grad", "grad_final", "update")
#: two updates count as the same if their relative difference is at most this value
SAME = 1e-4


@dataclass(frozen=True, slots=True)
class Stage:
    """The tensors that the runs with and without the hooks produced for one parameter at one stage.

    Attributes:
        with_hooks: The gradient or the update with the hooks. None if the parameter had no gradient.
        without: The gradient or the update without the hooks. None if the parameter had no gradient.
    """

    with_hooks: Tensor | None
    without: Tensor | None

    @property
    def difference(self) -> Tensor | None:
        """Return `with_hooks - without`, where None counts as zero. Return None if both are None."""
        if self.with_hooks is None and self.without is None:
            return None
        zero = torch.zeros_like(self.with_hooks if self.with_hooks is not None else self.without)  # type: ignore[arg-type]
        return (self.with_hooks if self.with_hooks is not None else zero) - (
            self.without if self.without is not None else zero
        )

    @property
    def same(self) -> bool:
        """Return True if both runs produced the same values."""
        return self.difference is None or not bool(self.difference.any())


class Effect(Mapping[str, dict[str, Stage]]):
    """A mapping from parameter names to stages, which `th.effect` returns.

    `effect[parameter][stage]` holds the tensors of one stage, from both runs. The stages are `"grad"`
    (after the backward pass), `"grad_final"` (right before the step) and `"update"` (the change that the step made to
    the parameter). Without an optimizer, the last two stages are missing. Print the effect to see a table of norms and
    a verdict for each parameter.

    Args:
        stages: For each parameter name, the stages by stage name.
        optimizers: For each parameter name, the optimizer that updates the parameter, or None.
    """

    def __init__(self, stages: dict[str, dict[str, Stage]], optimizers: Mapping[str, Optimizer | None]) -> None:
        self._stages = stages
        self._optimizers = optimizers

    def __getitem__(self, name: str) -> dict[str, Stage]:
        return self._stages[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stages)

    def __len__(self) -> int:
        return len(self._stages)

    def verdict(self, name: str) -> str:
        """Describe whether the hooks' changes reach a parameter and, if not, where they are undone.

        Args:
            name: The name of a parameter of the model.

        Returns:
            A short text such as `"reaches the parameter"` or `"unchanged"`.

        Raises:
            KeyError: The model does not have a parameter with this name.
        """
        stages = self._stages[name]
        if all(stage.same for stage in stages.values()):
            return "unchanged"
        final, update = stages.get("grad_final"), stages.get("update")
        if final is None or update is None:
            return "changed, but no attached optimizer updates the parameter"
        optimizer = self._optimizers.get(name)
        if final.same:
            return "undone before the step: grad_final is the same with and without the hooks"
        kind = type(optimizer).__name__
        moved = _norm(update.with_hooks)
        if not _norm(final.with_hooks) and moved:
            return f"the gradient is zero, but {kind} still moves the parameter because of {_mover(optimizer, name)}"
        if _norm(update.difference) <= SAME * max(moved, _norm(update.without)):
            why = (
                "it divides each gradient by a running average of its size"
                if kind in SCALE_FREE
                else "the step is the same"
            )
            return f"undone by {kind}: {why}"
        return "reaches the parameter"

    def _changed(self, name: str) -> float:
        """Return how large the change is in the last stage, relative to the larger one of the two results."""
        last = list(self._stages[name].values())[-1]
        return _norm(last.difference) / (max(_norm(last.without), _norm(last.with_hooks)) or 1.0)

    def _table(self) -> TextTable:
        rows, bars = [], []
        for name, stages in self._stages.items():
            cells: list[object] = [name]
            for stage in STAGES:
                found = stages.get(stage)
                cells += [_norm(found.without), _norm(found.with_hooks)] if found is not None else [None, None]
            rows.append([*cells, self.verdict(name)])
            changed = self._changed(name)
            bars.append(bar(changed, f"{name}: the hooks change {100 * changed:.3g} % of the last stage"))
        head = ("parameter", *(f"{s} {w}" for s in STAGES for w in ("without", "with")), "verdict")
        return TextTable("norms without and with the hooks", head, rows, pictures=bars)

    def __repr__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()


def _norm(tensor: Tensor | None) -> float:
    return 0.0 if tensor is None else float(tensor.double().norm())


def _mover(optimizer: Optimizer | None, name: str) -> str:
    return mover(optimizer.param_groups[0]) if optimizer is not None else "something else"


def effect(rig: Rig, loss: Tensor) -> Effect:
    """Measure how a rig's hooks change the gradients and the optimizer's step.

    `effect` runs the backward pass of the loss twice, with the hooks and without them. Each run ends with one step of
    every attached optimizer. Then `effect` restores all parameters, buffers, gradients, counters and random number
    generators, and the state of the optimizers and hooks. The graph is retained, so you can call `loss.backward()`
    afterwards.

    The two runs share one forward pass, so both include the changes that hooks made in that pass. Hooks that do not
    belong to the rig fire in both runs. If a non-leaf tensor retains its gradient, both runs write to its `.grad`.

    Args:
        rig: A rig that is attached to a model in a single process.
        loss: The loss of the model's last forward pass. Its backward pass must not have run yet.

    Returns:
        The gradients and updates of each parameter with and without the hooks. Print the result to see a table.

    Raises:
        AttachedError: The rig was detached, or its model was deleted.
        RefusedError: The loss is not a tensor with one number that requires a gradient, its backward pass has run,
            several ranks are running, or an optimizer's step needs a closure.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> model = torch.nn.Linear(2, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> hook = th.Hook("double", on="weight", at="grad", do=th.scale(2.0))
        >>> rig = th.attach(model, th.Plan([hook]), optimizer=optimizer)
        >>> effect = th.effect(rig, model(torch.ones(1, 2)).sum())
        >>> effect["weight"]["grad"].difference
        tensor([[1., 1.]])
        >>> effect.verdict("weight"), effect.verdict("bias")
        ('reaches the parameter', 'unchanged')
        >>> rig.detach()
    """
    model = rig._current_model()
    if not isinstance(loss, Tensor):
        raise RefusedError(
            f"effect needs the loss as a tensor, but was given a value of type {type(loss).__name__}",
            remedy="compute `loss = criterion(model(x), y)` and call `th.effect(rig, loss)`",
        )
    if ranks.world_size() > 1:
        raise RefusedError(
            "effect runs the backward pass twice, and on several ranks each pass would reduce the gradients",
            remedy="call effect in a single process, with the batch of one rank",
        )
    if not loss.requires_grad:
        raise RefusedError(
            "the loss does not require a gradient", remedy="compute the loss from this model with gradients enabled"
        )
    if loss.numel() != 1:
        raise RefusedError(
            f"the loss has the shape {list(loss.shape)}, but a backward pass begins at one number",
            remedy="reduce the loss: th.effect(rig, loss.mean())",
        )
    parameters = {
        name: p for name, target in targets_of(model, {}).parameters.items() if (p := target.parameter()) is not None
    }
    optimizers = rig._installer.environment.model.optimizers()
    holder = {id(p): o for o in optimizers.values() for g in o.param_groups for p in g["params"]}
    runs = [_run(rig, loss, parameters, optimizers, hooked=hooked) for hooked in (True, False)]
    stages = {
        name: {stage: Stage(runs[0][stage].get(name), runs[1][stage].get(name)) for stage in STAGES if stage in runs[0]}
        for name in parameters
    }
    return Effect(stages, {name: holder.get(id(p)) for name, p in parameters.items()})


def _run(
    rig: Rig, loss: Tensor, parameters: Mapping[str, Tensor], optimizers: Mapping[str, Optimizer], *, hooked: bool
) -> dict[str, dict[str, Tensor]]:
    stages: dict[str, dict[str, Tensor]] = {}
    with rehearsal(rig, loss, optimizers.values()), nullcontext() if hooked else silenced(rig):
        try:
            loss.backward(retain_graph=True)
        except RuntimeError as error:
            if "a second time" not in str(error):
                raise
            raise RefusedError(
                "the backward pass of this loss has already run", remedy="call th.effect before loss.backward()"
            ) from None
        stages["grad"] = _grads(parameters)
        if optimizers:
            stages["grad_final"], stages["update"] = {}, {}
        for optimizer in optimizers.values():
            mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
            held = {name: p for name, p in parameters.items() if id(p) in mine}
            before = {name: p.detach().clone() for name, p in held.items()}
            try:
                step(optimizer, lambda held=held: stages["grad_final"].update(_grads(held)))  # type: ignore[misc]
            except TypeError as error:
                raise RefusedError(
                    f"the step of {type(optimizer).__name__} needs a closure, but effect cannot pass one",
                    remedy="attach the rig without this optimizer",
                ) from error
            stages["update"].update({name: p.detach() - before[name] for name, p in held.items()})
    return stages


def _grads(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: p.grad.detach().clone() for name, p in parameters.items() if p.grad is not None}
