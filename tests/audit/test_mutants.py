"""Break each mechanism that follows, wakes, binds or chooses the phase: the auditor alone must notice every one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

import tenterhook as th
from tenterhook.resolve import fingerprint, resolution
from tenterhook.rig import installer, model_sync, registrations, rootless_calls
from tenterhook.rig.points import module_registration, parameter_grads
from tenterhook.rig.runtime import attached_hook, registration
from tenterhook.rig.step import optimizer_step, step_targets
from tests.support.slices import sliced

POINTS = ("grad", "grad_accumulated", "grad_final", "update", "input", "output", "grad_output", "grad_input")
#: the sampled audit runs at least this often
STEPS = 66


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.head = nn.Linear(3, 2)
        #: the number of blocks that `loss` leaves out
        self.left_out = 0

    def forward(self, x: torch.Tensor, first: int = 0) -> torch.Tensor:
        for block in self.blocks[first:]:
            x = block(x).tanh()
        return self.head(x)

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        return Net.forward(self, x, self.left_out).square().mean()


@dataclass
class World:
    model: Net
    optimizer: torch.optim.Optimizer
    rootless: bool = False

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.optimizer.zero_grad()
            x = torch.ones(2, 3)
            (self.model.loss(x) if self.rootless else self.model(x).square().mean()).backward()
            self.optimizer.step()


def steady(world: World) -> None:
    world.train(STEPS)


def unfrozen(world: World) -> None:
    world.model.head.requires_grad_(False)
    world.train(2)
    world.model.head.requires_grad_(True)
    world.train(STEPS)


def frozen_from_the_start(world: World) -> None:
    world.train(2)
    world.model.head.requires_grad_(True)
    world.train(STEPS)


def assigned(world: World) -> None:
    world.train(2)
    world.model.head.weight = new = nn.Parameter(torch.ones(2, 3))
    world.optimizer.param_groups[0]["params"].append(new)
    world.train(STEPS)


def replaced(world: World) -> None:
    world.train(2)
    world.model.head = nn.Linear(3, 2)
    world.optimizer.add_param_group({"params": list(world.model.head.parameters())})
    world.train(STEPS)


def added(world: World) -> None:
    world.train(2)
    world.model.blocks.append(nn.Linear(3, 3))
    world.optimizer.add_param_group({"params": list(world.model.blocks[2].parameters())})
    world.train(STEPS)


def deleted(world: World) -> None:
    world.train(2)
    del world.model.blocks[0]
    world.train(STEPS)


def in_eval_mode(world: World) -> None:
    world.model.eval()
    world.train(STEPS)


def rootless_added(world: World) -> None:
    world.rootless = True
    added(world)


def rootless_added_inside(world: World) -> None:
    """Add a block. The only pass without the root begins with this block, and not with one that is always watched."""
    world.train(2)
    world.model.blocks.append(nn.Linear(3, 3))
    world.optimizer.add_param_group({"params": list(world.model.blocks[2].parameters())})
    world.rootless, world.model.left_out = True, 2
    world.train(1)
    world.rootless = False
    world.train(STEPS)


def rootless_inserted(world: World) -> None:
    """Insert a block, which PyTorch does not report. The next pass does not call the root."""
    world.train(2)
    world.model.blocks.insert(1, nn.Linear(3, 3))
    world.optimizer.add_param_group({"params": list(world.model.blocks[1].parameters())})
    world.rootless = True
    world.train(1)
    world.rootless = False
    world.train(STEPS)


def rootless_growing(world: World) -> None:
    """Add a block before every step: only the first pass after each addition needs the mechanism."""
    world.rootless = True
    for _ in range(8):
        world.model.blocks.append(nn.Linear(3, 3))
        world.optimizer.add_param_group({"params": list(world.model.blocks[-1].parameters())})
        world.train(1)


def rootless_assigned(world: World) -> None:
    world.rootless = True
    assigned(world)


def run(scenario: Callable[[World], None], *, every: int = 1) -> list[str]:
    """Run a scenario with hooks at all points, and return the codes that were reported."""
    torch.manual_seed(0)
    world = World(model := Net(), torch.optim.SGD(model.parameters(), lr=0.01))
    model.head.requires_grad_(scenario is not frozen_from_the_start)
    hooks = [th.Hook(at, on="**", at=at, do=th.stats(), when=th.When(every=every, phase=None)) for at in POINTS]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rig = th.attach(model, hooks, optimizer=world.optimizer)
        scenario(world)
        rig.detach()
    return [str(one.message).split()[1].rstrip(":") for one in caught if str(one.message).startswith("tenterhook TH7")]


SCENARIOS = (
    steady,
    unfrozen,
    frozen_from_the_start,
    assigned,
    replaced,
    added,
    deleted,
    in_eval_mode,
    rootless_added,
    rootless_added_inside,
    rootless_inserted,
    rootless_growing,
    rootless_assigned,
)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.__name__)
def test_nothing_is_reported_when_nothing_is_broken(scenario: Callable[[World], None]) -> None:
    assert run(scenario) == []
    assert run(scenario, every=3) == []


# -- mutants ----------------------------------------------------------------------------------------------------------


def nothing(*args: Any, **kwargs: Any) -> None:
    """Do nothing."""


def after(count: int, original: Callable[..., Any], instead: Callable[..., Any]) -> Callable[..., Any]:
    """Call the original function a number of times, and then another one."""
    calls = 0

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        return (original if calls <= count else instead)(*args, **kwargs)

    return call


def not_on_frozen(
    self: Any, call: Callable[..., Any], original: Any = parameter_grads.ParameterRegistration._register
) -> Any:
    parameter = self.tensor()
    return original(self, call) if parameter is not None and parameter.requires_grad else None


def on_a_copy(self: Any, call: Callable[..., Any]) -> Any:
    copy = self.tensor().detach().clone().requires_grad_()
    return copy.register_hook(call) if self.point == "grad" else copy.register_post_accumulate_grad_hook(call)


def on_another_module(self: Any, call: Callable[..., Any]) -> Any:
    return nn.Identity().register_forward_hook(call, with_kwargs=True)


def fewer(self: Any, hook: Any, before: Any, original: Any = step_targets.StepTargets._decide) -> Any:
    found = original(self, hook, before)
    return found._replace(sites=found.sites[1:], parameters=found.parameters[1:])


def known_targets(hook: Any, view: Any, *, strict: bool = True, original: Any = resolution.find_targets) -> Any:
    return tuple(one for one in original(hook, view, strict=strict) if "2" not in one.name)


def blocks_always(self: Any, blocked: bool) -> None:
    self.blocked = self.blocked or self.dormant is not None


def without_new_parameters(self: Any) -> None:
    self._sync.begin_step(optimizer_changed=False)


def only_trained(self: Any, original: Any = fingerprint.Fingerprint.compare) -> Any:
    return min(original(self), fingerprint.Change.TRAINED)


def as_it_was(self: Any) -> Any:
    return fingerprint.Change.NOTHING


def phase_of_model(hook: Any, *, observes: bool) -> str:
    return "train"


def no_targets(self: Any, hook: Any) -> Any:
    return step_targets.Reached([], [], False)


Sync, Targets = model_sync.ModelSync, step_targets.StepTargets
Step, Parameter = optimizer_step.OptimizerStep, parameter_grads.ParameterRegistration
Module, Registration = module_registration.ModuleRegistration, registration.Registration

#: what is broken: the owner, the attribute, what takes its place, and a scenario that needs it
MUTANTS: list[tuple[Any, str, Any, Callable[[World], None]]] = [
    # following
    (Sync, "follow", nothing, replaced),
    (Sync, "follow", nothing, added),
    (Sync, "resolve_again", nothing, added),
    (Sync, "resolve_again", nothing, deleted),
    (Sync, "begin_forward", nothing, replaced),
    (Sync, "_move", lambda self, site, target: False, replaced),
    (Sync, "_was_swapped", nothing, assigned),
    (model_sync, "find_targets", known_targets, added),
    (fingerprint.Fingerprint, "compare", as_it_was, replaced),
    (fingerprint.Fingerprint, "compare", only_trained, added),
    (registrations.Registrations, "move", nothing, replaced),
    (registrations.Registrations, "add_site", nothing, added),
    (rootless_calls.RootlessCalls, "assigned", nothing, rootless_added_inside),
    (rootless_calls.RootlessCalls, "watch_ends", nothing, rootless_inserted),
    (rootless_calls.RootlessCalls, "_begin", nothing, rootless_growing),
    (installer.Installer, "apply_schedule", after(1, installer.Installer.apply_schedule, nothing), added),
    # waking
    (attached_hook.Site, "wake", nothing, unfrozen),
    (attached_hook.Site, "_block", blocks_always, unfrozen),
    (Parameter, "_register", not_on_frozen, frozen_from_the_start),
    (attached_hook.Site, "count", nothing, steady),
    # binding
    (Parameter, "_register", on_a_copy, steady),
    (Parameter, "rebind", nothing, assigned),
    (Module, "_register", on_another_module, steady),
    (Registration, "install", after(30, Registration.install, nothing), replaced),
    (Registration, "refresh", after(30, Registration.refresh, nothing), added),
    (Targets, "reached_by", no_targets, steady),
    (Targets, "_decide", fewer, steady),
    (Targets, "begin_step", nothing, added),
    (Step, "_pre", nothing, steady),
    (Step, "_finals", nothing, steady),
    (Step, "_updates", nothing, steady),
    (Step, "_copy_parameters", nothing, steady),
    (Step, "set_hooks", nothing, steady),
    # phase
    (resolution, "_phase", phase_of_model, in_eval_mode),
    (attached_hook.AttachedHook, "in_phase", lambda self, training=None: False, steady),
]


@pytest.mark.parametrize(
    ("owner", "name", "instead", "scenario"),
    [pytest.param(*one, id=f"{i}-{one[1]}-{one[3].__name__}") for i, one in sliced(list(enumerate(MUTANTS)), 3)],
)
def test_the_auditor_notices_every_broken_mechanism(
    owner: Any, name: str, instead: Any, scenario: Callable[[World], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, instead)
    assert run(scenario), "nothing was reported"


def test_there_are_enough_mutants() -> None:
    assert len(MUTANTS) >= 30
