"""Train a small model with a hook on a device, step by step, and keep what can be compared with another device."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import tenterhook as th
from tests.support.devices import simulated
from tests.support.devices.transfers import Transfer, counted

STEPS = 4


class Net(nn.Module):
    """Calls one block in every step and another one in every second step. Has a tap."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.often = nn.Linear(8, 8)
        self.seldom = nn.Linear(8, 8)
        self.last = nn.Linear(8, 2)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        h = th.tap(torch.tanh(self.first(x)), "mark")
        h = h + torch.tanh(self.often(h))
        if self.calls % 2:
            h = h + torch.tanh(self.seldom(h))
        self.calls += 1
        return self.last(h)


@dataclass
class Outcome:
    """Holds the results of a training. The lists have one element for each step."""

    weights: list[dict[str, bytes]] = field(default_factory=list)
    captured: list[dict[str, list[bytes]]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    fired: dict[str, int] = field(default_factory=dict)
    #: what was recorded and not written
    lost: list[str] = field(default_factory=list)
    transfers: list[list[Transfer]] = field(default_factory=list)

    def differences(self, other: Outcome) -> list[str]:
        """Return the names of what differs from another training. The numbers of the transfers may differ."""
        kinds = ("weights", "captured", "rows", "fired", "lost")
        return [kind for kind in kinds if repr(getattr(self, kind)) != repr(getattr(other, kind))]


#: attaches hooks to a model and its optimizer; the last argument has the sinks
Attach = Callable[[nn.Module, torch.optim.Optimizer, list[Any]], th.Rig | None]
Make = Callable[[str], nn.Module]


def train(
    attach: Attach,
    device: str,
    *,
    make: Make | None = None,
    around: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Outcome:
    """Train a model on a device, with hooks, and count the transfers of each step.

    Args:
        attach: Function that attaches hooks.
        device: Name of the device.
        make: Function that creates the model on the device.
        around: Returns a context in which each step runs.
    """
    torch.manual_seed(0)
    found, model = Outcome(), make(device) if make is not None else placed(Net(), device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with tempfile.TemporaryDirectory() as folder:
        sinks = [th.Store(folder), lambda values, step: found.rows.append({"step": step, **values})]
        rig = attach(model, optimizer, sinks)
        for step in range(STEPS):
            x = sent(torch.randn(3, 4, generator=torch.Generator("cpu").manual_seed(step), device="cpu"), device)
            with around(), counted() as transfers:
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
            found.transfers.append(transfers)
            found.weights.append({name: bits(one) for name, one in model.named_parameters()})
            if rig is not None:
                found.captured.append({hook: _captured(rig, hook) for hook in rig.ledger if _captures(rig, hook)})
        if rig is not None:
            found.fired = {hook: account.fired for hook, account in rig.ledger.items()}
            rig.detach()
            found.lost = rig._recorder.losses()
    torch.set_default_device(None)
    if dist.is_initialized():
        dist.destroy_process_group()
    _number_from_zero(found.rows)
    return found


def placed(model: nn.Module, device: str) -> nn.Module:
    """Return a model on a device."""
    return simulated.move(model) if device == simulated.NAME else model.to(device)


def sent(tensor: Tensor, device: str) -> Tensor:
    """Return a tensor on a device. This is not counted on the simulated device."""
    return simulated.SimulatedTensor(tensor) if device == simulated.NAME else tensor.to(device)


def bits(tensor: Tensor) -> bytes:
    """Return the bits of a tensor. This is not counted on the simulated device."""
    values = tensor.detach().values if isinstance(tensor, simulated.SimulatedTensor) else tensor.detach().cpu()
    return values.contiguous().view(torch.uint8).numpy().tobytes() if values.numel() else b""


def _captures(rig: th.Rig, hook: str) -> bool:
    do = rig.ledger[hook].hook.do
    return isinstance(do, th.Action) and do.name == "capture"


def _captured(rig: th.Rig, hook: str) -> list[bytes]:
    return [bits(one) for kept in rig.captured(hook).values() for one in kept]


def _number_from_zero(rows: list[dict[str, Any]]) -> None:
    """Count the calls that a digest numbers from zero, because it numbers those of all trainings in the process."""
    orders = [(row, name) for row in rows for name in row if "/order" in name]
    first = min((row[name] for row, name in orders), default=0)
    for row, name in orders:
        row[name] -= first


def hook(action: Any, point: str) -> Attach:
    """Return a function that attaches an action at a point of every target."""

    def attach(model: nn.Module, optimizer: torch.optim.Optimizer, sinks: list[Any]) -> th.Rig:
        one = th.Hook("case", on="**", at=point, do=action, on_error="raise")
        return th.attach(model, one, optimizer=optimizer, sinks=sinks)

    return attach
