"""List programs in which several parts of the package act together on a device."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import tenterhook as th
from tests.support.devices.cases import Case, case_of
from tests.support.devices.programs import Attach, Make, Net, placed, train

Optimizer = torch.optim.Optimizer


def watch(model: nn.Module, optimizer: Optimizer, sinks: list[Any]) -> th.Rig:
    return th.watch(model, optimizer, sinks=sinks)


def flight(trip: Any) -> Attach:
    return lambda model, optimizer, sinks: th.flight(model, optimizer, tempfile.mkdtemp(), trip=trip)


def plan(model: nn.Module, optimizer: Optimizer, sinks: list[Any]) -> th.Rig:
    """Attach many hooks, some of them not in each step."""
    hooks = [
        th.Hook("activations", on="**", at="output", do=th.stats()),
        th.Hook("sizes", on="**", at="grad", do=th.histogram(), when=th.When(every=2)),
        th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(0.05, over="hook")),
        th.Hook("moved", on="**.weight", at="update", do=th.ratio()),
        th.Hook("bits", on="**", at="output", do=th.digest()),
        th.Hook("largest", on="**", at="grad_output", do=_largest),
    ]
    return th.attach(model, hooks, optimizer=optimizer, sinks=sinks)


def _largest(gradient: Tensor, ctx: th.Context) -> None:
    ctx.emit("largest", gradient.abs().max())
    ctx.emit("numel", gradient.numel())


def awaited(model: nn.Module, optimizer: Optimizer, sinks: list[Any]) -> th.Rig:
    """Attach a trigger, and a hook that waits for it."""
    hooks = [
        th.Hook("leap", on="**", at="grad_final", do=th.spike(0.1, warmup=1)),
        th.Hook("after", on="**", at="grad", do=th.stats(), when=th.When(after_trip=2)),
    ]
    return th.attach(model, hooks, optimizer=optimizer, sinks=sinks)


def without_optimizer(model: nn.Module, optimizer: Optimizer, sinks: list[Any]) -> th.Rig:
    return th.attach(model, th.Hook("grads", on="**", at="grad", do=th.stats()), sinks=sinks)


def by_default(model: nn.Module, optimizer: Optimizer, sinks: list[Any]) -> th.Rig:
    """Attach many hooks in a program whose default device is that of the model. `train` resets it."""
    torch.set_default_device(next(model.parameters()).device)
    return plan(model, optimizer, sinks)


class Halves(Net):
    """Runs its last layer on the CPU."""

    def forward(self, x: Tensor) -> Tensor:
        last, self.last = self.last, nn.Identity()
        try:
            h = super().forward(x)
        finally:
            self.last = last
        out: Tensor = last(h.to("cpu"))
        return out


def halves(device: str) -> nn.Module:
    model = Halves()
    last, model.last = model.last, nn.Identity()
    placed(model, device)
    model.last = last
    return model


def on_two_ranks(model: nn.Module, optimizer: Optimizer, sinks: list[Any]) -> th.Rig:
    """Attach observers whose numbers are merged over two ranks. The other rank is simulated by PyTorch."""
    dist.init_process_group("fake", rank=0, world_size=2, store=dist.HashStore())
    hook = th.Hook("merged", on="**", at="output", do=th.watch_nonfinite())
    return th.attach(model, hook, optimizer=optimizer, sinks=sinks)


@dataclass(frozen=True, slots=True)
class Form:
    """A program, and how often its training may wait for the device in a step. None means that this depends on it."""

    attach: Attach
    make: Make | None = None
    waits: int | None = 0
    #: number of asynchronous copies to the host in a recorded step
    copies: int = 1


FORMS: dict[str, Form] = {
    "`th.watch`": Form(watch),
    "six hooks in a plan": Form(plan),
    "six hooks, and the device is the default device": Form(by_default),
    "six hooks, and one layer is on the CPU": Form(plan, halves, waits=None),
    "a hook, and the rig has no optimizer": Form(without_optimizer),
    '`th.flight(trip="now")`': Form(flight("now"), waits=1, copies=2),
    '`th.flight(trip="late")`': Form(flight("late"), copies=2),
    "`spike`, and a hook with `after_trip`": Form(awaited, waits=1),
    "a trigger on two ranks, which merge its numbers on the device": Form(on_two_ranks, waits=1),
}


def run(name: str, device: str) -> Case:
    """Run a program on the CPU and on a device, and compare. Transfers of the program itself are not counted."""
    form = FORMS[name]
    at_home, away = (train(form.attach, place, make=form.make) for place in ("cpu", device))
    bare = train(lambda *given: None, device, make=form.make)
    found, own = case_of(name, "", at_home, away), case_of(name, "", at_home, bare).most
    return replace(found, most={kind: most - own[kind] for kind, most in found.most.items()})
