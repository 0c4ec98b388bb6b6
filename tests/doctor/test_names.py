"""Test that `th.hook` accepts every name that the doctor prints."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import tenterhook as th
from tenterhook.doctor.observe.distribution import Replica


def parametrized() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    parametrizations.weight_norm(model[0])
    parametrizations.spectral_norm(model[1])
    return model


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    return model


def shared() -> nn.Module:
    layer = nn.Linear(3, 3)
    return nn.Sequential(layer, nn.ReLU(), layer)


def compiled() -> nn.Module:
    return torch.compile(nn.Sequential(nn.Linear(3, 3)), backend="eager")


def compiled_inside() -> nn.Module:
    return nn.Sequential(torch.compile(nn.Linear(3, 3), backend="eager"), nn.Linear(3, 3))


def parallel() -> nn.Module:
    return nn.DataParallel(nn.Sequential(nn.Linear(3, 3)))


def mixed() -> nn.Module:
    return nn.DataParallel(torch.compile(parametrized(), backend="eager"))


class ContainsItself(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.myself = self


class Child(nn.Linear):
    def __init__(self, parent: nn.Module) -> None:
        super().__init__(3, 3)
        self.parent = parent


class KnownToItsChild(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.child = Child(self)


MODELS = [ContainsItself, KnownToItsChild, parametrized, tied, shared, compiled, compiled_inside, parallel, mixed]


@pytest.mark.parametrize("make", MODELS)
def test_a_hook_takes_every_name_that_the_doctor_gives(make: Callable[[], nn.Module]) -> None:
    model = make()
    with th.examine() as exam:
        for parameter in model.parameters():
            parameter.register_hook(lambda grad: None)
        for module in model.modules():
            module.register_forward_pre_hook(lambda module, args: None)
    names = {hook.owner.name: hook.kind for hook in exam.hooks}
    assert len(names) > 1
    for name, kind in names.items():
        at = "grad" if kind == "register_hook" else "save_pre"
        with th.hook(model, lambda value: None, on=name, at=at) as handle:
            targets = next(iter(handle.rig.ledger.values()))
            assert len(targets) == 1, name


def test_a_parametrized_parameter_has_the_name_of_the_rig() -> None:
    model = parametrized()
    with th.examine() as exam:
        for parameter in model.parameters():
            parameter.register_hook(lambda grad: None)
    rig = th.attach(model, th.Hook("h", on="**", at="grad", do=th.stats()))
    assert {hook.owner.name for hook in exam.hooks} == set(rig.ledger["h"])


def doubled(grad: torch.Tensor) -> torch.Tensor:
    return grad * 2


@pytest.mark.parametrize("wrap", [lambda m: torch.compile(m, backend="eager"), nn.DataParallel, lambda m: m])
def test_a_wrapper_is_no_second_name(wrap: Callable[[nn.Module], nn.Module]) -> None:
    with th.examine() as exam:
        model = nn.Sequential(nn.Linear(3, 3))
        wrapped = wrap(model)
        for _ in range(2):
            model[0].weight.register_hook(doubled)
            model.register_forward_hook(lambda module, args, output: None)
        model(torch.ones(1, 3)).sum().backward()
    assert wrapped is not None
    assert [found.code for found in exam.findings.grave] == ["TH403", "TH403"]


def test_a_tied_parameter_has_a_second_name() -> None:
    with th.examine() as exam:
        model = torch.compile(tied(), backend="eager")
        for _, parameter in model.named_parameters(remove_duplicate=False):
            if parameter.dim() == 2:
                parameter.register_hook(doubled)
        model._orig_mod(torch.ones(1, 3)).sum().backward()
    (found,) = exam.findings.grave
    assert found.code == "TH405" and "which is also named '1.weight'" in found.evidence


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
def test_a_scripted_parameter_under_ddp_has_the_name_that_pytorch_prints() -> None:
    model = nn.Sequential(nn.Linear(3, 3), torch.jit.script(nn.Linear(3, 3)))
    model(torch.ones(1, 3)).sum().backward()
    ddp = nn.Module()
    ddp.module = model
    known = frozenset(id(p) for p in model[0].parameters())
    replica = Replica(weakref.ref(ddp), known, frozenset(), None, ranks=2, ignored=frozenset(), frozen=frozenset())
    replica.look()
    assert replica.strangers == {"1.weight": "added", "1.bias": "added"}
