"""Plant transfers in a hook, so that a test sees that the simulated device counts each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from tests.support.devices import simulated
from tests.support.devices.programs import hook, train
from tests.support.devices.transfers import Kind, Transfer


def _numpy(x: Tensor) -> None:
    try:
        x.numpy()
    except TypeError:
        return
    raise AssertionError("a device refuses this")


def _copy_into(x: Tensor) -> None:
    torch.empty_like(x).copy_(torch.ones(x.shape, device="cpu"))


#: for each kind of transfer, functions that make one
PLANTED: dict[str, tuple[Kind, Callable[[Tensor], Any]]] = {
    "item": (Kind.READ, lambda x: x.sum().item()),
    "bool": (Kind.READ, lambda x: bool(x.sum() > 0)),
    "float": (Kind.READ, lambda x: float(x.sum())),
    "tolist": (Kind.READ, lambda x: x.tolist()),
    "numpy": (Kind.READ, _numpy),
    "equal": (Kind.READ, lambda x: torch.equal(x, x + 1)),
    "nonzero": (Kind.READ, lambda x: x.nonzero()),
    "bincount": (Kind.READ, lambda x: torch.bincount(x.view(-1).long().abs(), minlength=4)),
    "boolean index": (Kind.READ, lambda x: x[x > 0]),
    "to cpu": (Kind.TO_HOST, lambda x: x.to("cpu")),
    "to device": (Kind.TO_DEVICE, lambda x: torch.ones(2, device="cpu").to(x.device)),
    "tensor": (Kind.TO_DEVICE, lambda x: torch.tensor([1.0], device=x.device)),
    "copy_": (Kind.TO_DEVICE, _copy_into),
    "index on the host": (Kind.TO_DEVICE, lambda x: x[[0, 1]]),
    "to cpu, later": (Kind.TO_HOST_LATER, lambda x: x.to("cpu", non_blocking=True)),
    "to device, later": (Kind.TO_DEVICE_LATER, lambda x: torch.ones(2).to(x.device, non_blocking=True)),
}
#: a point in the main thread, and one in autograd's thread of the device; each fires once in a step
POINTS = ("value", "value_grad")


def found(names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the transfers that planted functions make in each step."""
    for name in names:
        kind, act = PLANTED[name]
        for point in POINTS:
            outcome = train(hook(_quiet(act), point), simulated.NAME)
            steps = [[_data(one) for one in transfers] for transfers in outcome.transfers]
            yield {"planted": name, "kind": kind, "point": point, "steps": steps}


def _quiet(act: Callable[[Tensor], Any]) -> Callable[[Tensor], None]:
    """Return a function that returns nothing, because what a hook returns replaces the value."""

    def planted(x: Tensor) -> None:
        act(x.detach())

    return planted


def _data(one: Transfer) -> list[str]:
    return [one.kind, one.thread, one.place]


def rules() -> dict[str, Any]:
    """Try what a device refuses or delays."""
    here, there = torch.ones(3, device=simulated.NAME), torch.ones(3)
    try:
        here + there
        mixed = ""
    except RuntimeError as error:
        mixed = str(error)
    host = here.to("cpu", non_blocking=True)
    early = host.isnan().all().item()
    event = torch.Event(here.device)
    event.record()
    event.synchronize()
    return {"mixed": mixed, "early": early, "arrived": host.tolist()}
