"""Define the oracle: the same model without tenterhook. Its hooks are plain PyTorch, and are registered each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tests.support.random_programs.hooks import FORWARD, HookSpec, modules_of, norm, parameters_of
from tests.support.random_programs.model import Net, module_names, parameter_names
from tests.support.random_programs.sides import Side

Target = nn.Module | nn.Parameter


class Twin(Side):
    """Do by hand what the hooks of a plan should do, from the definition of each point."""

    def __init__(self, model: Net, optimizers: list[Optimizer], plan: tuple[HookSpec, ...]) -> None:
        super().__init__(model, optimizers)
        self.plan = plan
        self.muted: set[str] = set()
        self.steps = 0
        self.notes: list[tuple[str, float]] = []
        #: what observers saw since the last step, and in the last step with all names of each target
        self.seen: dict[str, dict[Target, list[Tensor]]] = {}
        self.last: dict[str, list[tuple[list[str], list[Tensor]]]] = {}
        self.dirty = False
        #: functions that may or may not be called: a parameter was frozen after it was used
        self.loose: set[str] = set()
        #: for each pass to come, whether it uses the checkpoint; a pass that is not listed uses it
        self.checkpoints: list[bool] = []
        self._trainable: list[nn.Parameter] = []
        self._in_backward = self._ran_backward = False
        self._handles: list[Any] = []

    # firing

    def due(self, *points: str) -> list[HookSpec]:
        """Return the hooks at these points that are not muted, in plan order."""
        return [hook for hook in self.plan if hook.at in points and hook.id not in self.muted]

    def fire(self, hook: HookSpec, x: Tensor, target: Target) -> Tensor | None:
        """Return what a hook makes of a value, or None if it only observes the value."""
        if not hook.observes:
            return hook.by_hand(x, self.steps)
        if hook.do == "note":
            self.notes.append((hook.id, norm([x])))
        elif hook.at not in FORWARD or (self.model.training and not self._in_backward):
            self.seen.setdefault(hook.id, {}).setdefault(target, []).append(x.detach().clone())
        return None

    def _on_gradient(self, hook: HookSpec, target: Target) -> Callable[[Tensor], Tensor | None]:
        def call(grad: Tensor) -> Tensor | None:
            return None if hook.id in self.muted else self.fire(hook, grad, target)

        return call

    # modules

    def loss(self, batch: int, via: str) -> Tensor:
        """Compute the loss, without the checkpoint if the compiler has made it a part of the graph.

        In eager mode, the gradient of a weight that is used inside a reentrant checkpoint and outside it arrives in two
        parts, and hooks fire twice. In compiled code, it arrives once, as a sum. There, a parameter may also be frozen
        before the backward pass, because the recomputation was compiled together with the forward pass.
        """
        self.model.uses_checkpoint = self.checkpoints.pop(0) if self.checkpoints else True
        try:
            return super().loss(batch, via)
        finally:
            self.model.uses_checkpoint = True

    def begin_forward(self) -> None:
        """Register forward hooks on the modules that the hooks select now."""
        self._in_backward = False
        self._trainable = [p for p in parameter_names(self.model) if p.requires_grad]
        chosen: dict[nn.Module, list[HookSpec]] = {}
        for hook in self.due("input", "output", "grad_output", "grad_input"):
            for module in modules_of(hook, self.model):
                chosen.setdefault(module, []).append(hook)
        for module, hooks in chosen.items():
            self._handles.append(module.register_forward_pre_hook(self._before(hooks)))
            self._handles.append(module.register_forward_hook(self._after(hooks)))

    def _before(self, hooks: list[HookSpec]) -> Callable[..., Any]:
        def before(module: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
            (x,) = args
            for hook in hooks:
                if hook.at == "input":
                    new = self.fire(hook, x, module)
                    x = x if new is None else new
            return (self._with_gradient_hooks(x, "grad_input", hooks, module),)

        return before

    def _after(self, hooks: list[HookSpec]) -> Callable[..., Any]:
        def after(module: nn.Module, args: tuple[Tensor], out: Tensor) -> Tensor:
            for hook in hooks:
                if hook.at == "output":
                    new = self.fire(hook, out, module)
                    out = out if new is None else new
            return self._with_gradient_hooks(out, "grad_output", hooks, module)

        return after

    def _with_gradient_hooks(self, x: Tensor, at: str, hooks: list[HookSpec], module: nn.Module) -> Tensor:
        """Return an alias of a tensor, so that its gradient is that of this call only, with a hook for each hook."""
        hooks = [hook for hook in hooks if hook.at == at]
        if not hooks or not x.requires_grad or not torch.is_grad_enabled():
            return x
        x = x.view_as(x)
        for hook in hooks:
            x.register_hook(self._on_gradient(hook, module))
        return x

    # parameters

    def begin_backward(self) -> None:
        """Register tensor hooks on the parameters that the hooks select now."""
        self._in_backward = self._ran_backward = True
        if any(not p.requires_grad for p in self._trainable):
            self.dirty = True
            self.loose |= {hook.id for hook in self.plan}
        for hook in self.due("grad", "grad_accumulated"):
            for p in parameters_of(hook, self.model):
                if p.requires_grad:
                    call = self._on_gradient(hook, p)
                    if hook.at == "grad":
                        self._handles.append(p.register_hook(call))
                    else:
                        self._handles.append(p.register_post_accumulate_grad_hook(self._accumulated(call)))

    @staticmethod
    def _accumulated(call: Callable[[Tensor], Tensor | None]) -> Callable[[Tensor], None]:
        def change(p: Tensor) -> None:
            new = call(p.grad)
            if new is not None:
                p.grad = new

        return change

    def end_pass(self) -> None:
        """Remove everything that was registered for the pass."""
        self._in_backward = False
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    # the step

    @torch.no_grad()
    def step(self, index: int) -> None:
        """Change the gradients that the optimizer is about to use, take the step, and observe the updates."""
        optimizer = self.optimizers[index]
        held = {p for group in optimizer.param_groups for p in group["params"]}
        for hook in self.due("grad_final"):
            self._change([p for p in parameters_of(hook, self.model) if p in held and p.grad is not None], hook)
        observers = [(hook, p) for hook in self.due("update") for p in parameters_of(hook, self.model) if p in held]
        old = {p: p.detach().clone() for _, p in observers}
        optimizer.step()
        for hook, p in observers:
            if p.grad is not None:
                self.fire(hook, p.detach() - old[p], p)
        if index == len(self.optimizers) - 1:
            self._end_step()

    def has_idle_optimizer(self) -> bool:
        """Return True if an optimizer trains no parameter of the model, so that it is open whether its steps count."""
        own = parameter_names(self.model)
        held = [{p for group in optimizer.param_groups for p in group["params"]} for optimizer in self.optimizers]
        return any(parameters.isdisjoint(own) for parameters in held)

    def _change(self, parameters: list[nn.Parameter], hook: HookSpec) -> None:
        if hook.do == "clip_total":
            if parameters:
                nn.utils.clip_grad_norm_(parameters, hook.number)
            return
        for p in parameters:
            new = self.fire(hook, p.grad, p)
            if new is not None:
                p.grad = new

    def _end_step(self) -> None:
        self.steps += 1
        names: dict[Target, list[str]] = {**module_names(self.model), **parameter_names(self.model)}
        self.last = {} if self.dirty else {
            id: [(names[target], parts) for target, parts in seen.items() if target in names]
            for id, seen in self.seen.items()
        }  # fmt: skip
        self.seen, self.dirty, self._ran_backward = {}, False, False

    # changes

    def touched(self) -> None:
        """Do not compare what observers saw in a step in which names changed after something was observed."""
        self.dirty = self.dirty or bool(self.seen)

    def swapped(self, parameter: nn.Parameter) -> None:
        """Let PyTorch install hooks again: after a swap, it takes the old dict of hooks for an installed one."""
        parameter._backward_hooks = parameter._post_accumulate_grad_hooks = None

    def cleared(self) -> None:
        """Do not compare what observers saw in a step whose first gradients were cleared: the rig leaves them out."""
        self.dirty = self.dirty or self._ran_backward

    def mute(self, id: str) -> None:
        self.touched()
        self.muted.add(id)

    def unmute(self, id: str) -> None:
        self.touched()
        self.muted.discard(id)

    def detach(self) -> None:
        self.plan = ()
