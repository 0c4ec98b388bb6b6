"""Watch a script with plain PyTorch hooks and write what happened."""

from __future__ import annotations

import math
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
    """Collects facts about one run. The modules are watched from update `start` on (None: never)."""

    def __init__(self, start=None, stop=None) -> None:
        self.begin, self.stop = start, stop
        self.stack = []
        self.roots = {}
        self.start = {}
        self.runs = {}
        self.last = {}
        self.events = []
        self.losses = []
        self.clips = []
        self.skips = []
        self.scale = 1.0
        self.steps = 0
        self.cache = {}
        self.handles = []

    def name(self, module):
        for root in self.roots.values():
            for name, other in root.named_modules():
                if other is module:
                    return name
        return "?"

    def event(self, what, module):
        if len(self.events) < 6:
            self.events.append({"what": what, "step": self.steps, "name": "" if module is None else self.name(module)})

    def root(self, module, args):
        """Remember the model at its first call (the outermost module that runs)."""
        if (
            self.handles
            and id(module) not in self.roots
            and not any(module in list(r.modules()) for r in self.roots.values())
        ):
            self.roots[id(module)] = module
            self.start[id(module)] = {n: p.detach().clone() for n, p in module.named_parameters()}

    def before(self, module, args, kwargs=None):
        if not self.stack:
            self.root(module, args)
        if not self.events and not finite((args, kwargs or {})):
            self.event("forward" if self.stack else "data", self.stack[-1] if self.stack else None)
        self.watch("in", module, args)
        self.stack.append(module)

    def after(self, module, args, output):
        if self.stack:
            self.stack.pop()
        if not self.events and not finite(output):
            self.event("forward", module)
        self.watch("out", module, output)

    def watch(self, side, module, value):
        if self.events:
            return
        for tensor in tensors(value):
            if tensor.requires_grad:

                def hook(grad):
                    if len(self.events) < 6 and not finite(grad):
                        self.event(f"backward {side}", module)

                tensor.register_hook(hook)

    def names(self, optimizer):
        key = (id(optimizer), len(self.roots))
        if key not in self.cache:
            known = {id(p): n for root in self.roots.values() for n, p in root.named_parameters()}
            params = [p for group in optimizer.param_groups for p in group["params"]]
            self.cache[key] = [known.get(id(p), f"?{i}") for i, p in enumerate(params)], params
        return self.cache[key]

    def pre_step(self, optimizer, args, kwargs):
        run = self.runs.setdefault(id(optimizer), {"rows": [], "changed": {}})
        names, params = self.names(optimizer)
        with torch.no_grad():
            have = [i for i, p in enumerate(params) if p.grad is not None]
            gradient = dict.fromkeys(names)
            if have:
                values = torch.stack(torch._foreach_norm([params[i].grad for i in have])).tolist()
                gradient |= {names[i]: v for i, v in zip(have, values, strict=True)}
            last = self.last.get(id(optimizer))
            if last is not None:
                moved = torch.stack(torch._foreach_norm(torch._foreach_sub(params, last))).tolist()
                for n, v in zip(names, moved, strict=True):
                    if v != 0:
                        run["changed"].setdefault(str(len(run["rows"])), []).append(n)
            norm = math.sqrt(sum(v * v for v in torch.stack(torch._foreach_norm(params)).tolist()))
            self.old = [p.clone() for p in params]
        row = {"lr": optimizer.param_groups[0]["lr"], "loss": sum(self.losses), "grad": gradient, "norm": norm}
        run["rows"].append(row)
        self.losses = []

    def post_step(self, optimizer, args, kwargs):
        row = self.runs[id(optimizer)]["rows"][-1]
        names, params = self.names(optimizer)
        with torch.no_grad():
            moved = torch.stack(torch._foreach_norm(torch._foreach_sub(params, self.old))).tolist()
            self.last[id(optimizer)] = [p.clone() for p in params]
        row["update"] = math.sqrt(sum(v * v for v in moved))
        row["bad"] = [n for n, p, v in zip(names, params, moved, strict=True) if not math.isfinite(v) and not finite(p)]
        self.steps = max(len(run["rows"]) for run in self.runs.values())
        if self.begin is not None and self.steps == self.begin:
            self.watch_modules()
        if self.stop is not None and self.steps > self.stop:
            raise EnoughError

    def watch_modules(self):
        for handle in self.handles:
            handle.remove()
        self.handles = []
        hooks.register_module_forward_pre_hook(self.before)
        hooks.register_module_forward_hook(self.after)
        for root in self.roots.values():  # keyword arguments of the model itself

            def keywords(module, args, kwargs):
                if not self.events and not finite(kwargs):
                    self.event("data", None)

            root.register_forward_pre_hook(keywords, with_kwargs=True)

    def install(self) -> None:
        if self.begin == 0:
            hooks.register_module_forward_pre_hook(self.before)
            hooks.register_module_forward_hook(self.after)
        self.handles = [hooks.register_module_forward_pre_hook(self.root)]
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

    def report(self):
        """Return all facts."""
        still = []
        for key, root in self.roots.items():
            named = dict(root.named_parameters())
            still += [n for n, p in self.start[key].items() if torch.equal(p, named[n].detach())]
        return {
            "events": self.events,
            "clips": self.clips,
            "skips": self.skips,
            "runs": list(self.runs.values()),
            "still": still,
        }


class EnoughError(Exception):
    """The rest of the run is not needed."""
