"""Watch a script with plain PyTorch hooks and write what happened: `python probe.py SCRIPT OUT.json`."""

from __future__ import annotations

import json
import math
import runpy
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook


def tensors(value: Any) -> Iterator[Tensor]:
    """Yield all floating-point tensors in a nested value."""
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors(item)


def finite(value: Any) -> bool:
    """Return True if no tensor in the value has NaN or infinity."""
    return all(bool(torch.isfinite(t).all()) for t in tensors(value))


class Probe:
    """Collects facts about one run."""

    def __init__(self) -> None:
        self.stack: list[nn.Module] = []
        self.roots: dict[int, nn.Module] = {}
        self.start: dict[int, dict[str, Tensor]] = {}
        self.runs: dict[int, dict[str, Any]] = {}
        self.last: dict[int, Tensor] = {}
        self.events: list[dict[str, Any]] = []
        self.losses: list[float] = []
        self.clips: list[float] = []
        self.skips: list[int] = []
        self.inputs: list[list[float]] = []
        self.scale = 1.0
        self.steps = 0

    def name(self, module: nn.Module) -> str:
        """Return the name of a module in its root."""
        for root in self.roots.values():
            for name, other in root.named_modules():
                if other is module:
                    return name
        return "?"

    def event(self, what: str, module: nn.Module | None) -> None:
        """Remember one of the first non-finite values."""
        if len(self.events) < 6:
            name = "" if module is None else self.name(module)
            self.events.append({"what": what, "step": self.steps, "name": name})

    def before(self, module: nn.Module, args: tuple) -> None:
        """Check the inputs of a module before each forward pass."""
        if not self.stack:
            if id(module) not in self.roots:
                self.roots[id(module)] = module
                self.start[id(module)] = {n: p.detach().clone() for n, p in module.named_parameters()}
            found = list(tensors(args))
            if found:
                self.inputs.append([self.steps, float(found[0].detach().abs().max())])
        if not self.events and not finite(args):
            self.event("forward" if self.stack else "data", self.stack[-1] if self.stack else None)
        self.watch("in", module, args)
        self.stack.append(module)

    def after(self, module: nn.Module, args: tuple, output: Any) -> None:
        """Check the output of a module after each forward pass."""
        self.stack.pop()
        if not self.events and not finite(output):
            self.event("forward", module)
        self.watch("out", module, output)

    def watch(self, side: str, module: nn.Module, value: Any) -> None:
        """Look at the gradients of these tensors."""
        if self.events:
            return
        for tensor in tensors(value):
            if tensor.requires_grad:

                def hook(grad: Tensor) -> None:
                    if len(self.events) < 6 and not finite(grad):
                        self.event(f"backward {side}", module)

                tensor.register_hook(hook)

    def names(self, optimizer: torch.optim.Optimizer) -> list[tuple[str, Tensor]]:
        """Return the parameters of an optimizer with their names."""
        known = {id(p): n for root in self.roots.values() for n, p in root.named_parameters()}
        params = [p for group in optimizer.param_groups for p in group["params"]]
        return [(known.get(id(p), f"?{i}"), p) for i, p in enumerate(params)]

    def pre_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Record the gradients, the loss and the learning rate before an update."""
        run = self.runs.setdefault(id(optimizer), {"rows": [], "changed": {}})
        gradient = {n: None if p.grad is None else float(p.grad.norm()) for n, p in self.names(optimizer)}
        for n, p in self.names(optimizer):
            if id(p) in self.last and not torch.equal(self.last[id(p)], p.detach()):
                run["changed"].setdefault(str(len(run["rows"])), []).append(n)
        norm = math.sqrt(sum(float(p.detach().norm()) ** 2 for _, p in self.names(optimizer)))
        row = {"lr": optimizer.param_groups[0]["lr"], "loss": sum(self.losses), "grad": gradient, "norm": norm}
        run["rows"].append(row)
        self.losses = []
        self.old = {id(p): p.detach().clone() for _, p in self.names(optimizer)}

    def post_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Record the size of an update and the non-finite parameters after it."""
        row = self.runs[id(optimizer)]["rows"][-1]
        named = self.names(optimizer)
        row["update"] = math.sqrt(sum(float((p.detach() - self.old[id(p)]).norm()) ** 2 for _, p in named))
        row["bad"] = [n for n, p in named if not finite(p)]
        for _, p in named:
            self.last[id(p)] = p.detach().clone()
        self.steps = max(len(run["rows"]) for run in self.runs.values())

    def install(self) -> None:
        """Put all hooks in place."""
        hooks.register_module_forward_pre_hook(self.before)
        hooks.register_module_forward_hook(self.after)
        register_optimizer_step_pre_hook(self.pre_step)
        register_optimizer_step_post_hook(self.post_step)
        backward, clip, probe = Tensor.backward, nn.utils.clip_grad_norm_, self
        scale, step = torch.amp.GradScaler.scale, torch.amp.GradScaler.step

        def new_backward(tensor: Tensor, *args: Any, **kwargs: Any) -> None:
            value = float(tensor.detach()) / probe.scale
            probe.losses.append(value)
            if not math.isfinite(value):
                probe.event("loss", None)
            backward(tensor, *args, **kwargs)

        def new_clip(parameters: Any, max_norm: float, *args: Any, **kwargs: Any) -> Tensor:
            norm = clip(parameters, max_norm, *args, **kwargs)
            probe.clips.append(float(norm) / max_norm)
            return norm

        def new_scale(scaler: Any, outputs: Tensor) -> Tensor:
            result = scale(scaler, outputs)
            probe.scale = scaler.get_scale()
            return result

        def new_scaler_step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            count = probe.steps
            result = step(scaler, optimizer, *args, **kwargs)
            if probe.steps == count:
                probe.skips.append(count)
            probe.losses = []
            return result

        Tensor.backward, nn.utils.clip_grad_norm_ = new_backward, new_clip
        torch.amp.GradScaler.scale, torch.amp.GradScaler.step = new_scale, new_scaler_step

    def report(self) -> dict[str, Any]:
        """Return all facts."""
        still = []
        for key, root in self.roots.items():
            named = dict(root.named_parameters())
            still += [n for n, p in self.start[key].items() if torch.equal(p, named[n].detach())]
        facts = {"events": self.events, "clips": self.clips, "skips": self.skips, "inputs": self.inputs}
        return {**facts, "runs": list(self.runs.values()), "still": still}


if __name__ == "__main__":
    target, out = sys.argv[1:3]
    watcher = Probe()
    watcher.install()
    sys.argv = [target]
    runpy.run_path(target, run_name="__main__")
    with open(out, "w") as file:
        json.dump(watcher.report(), file)
