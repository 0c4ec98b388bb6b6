"""Notice parameters that changed although no optimizer step was seen for them."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tenterhook import torch_internals as private
from tenterhook.audit.imbalance import Imbalance
from tenterhook.audit.ledger_data import HookData, LedgerData
from tenterhook.audit.names import named_parameters


class _Digest(NamedTuple):
    """The norms of parameters at one moment. They stay on the device until they are compared."""

    #: the identity and the name of each parameter
    keys: list[tuple[int, str]]
    norms: list[Tensor]
    #: identities of the parameters that a step has changed since
    stepped: set[int]


class ValueAudit:
    """An object that compares the norms of parameters at two looks, because some writes leave no other trace."""

    def __init__(self, model: nn.Module, ledger: LedgerData) -> None:
        self._model = weakref.ref(model)
        self._ledger = ledger
        self._last: _Digest | None = None
        #: the optimizers that have stepped since the last look
        self._stepped: weakref.WeakSet[Optimizer] = weakref.WeakSet()

    def begin(self) -> None:
        """Look at the values for the first time."""
        self._last = self._take()

    def stepped(self, optimizer: Optimizer) -> None:
        """Note that an optimizer has changed its parameters."""
        if self._last is not None and optimizer not in self._stepped:
            self._stepped.add(optimizer)
            self._last.stepped.update(id(one) for group in optimizer.param_groups for one in group["params"])

    def changed(self) -> Iterator[Imbalance]:
        """Yield the hooks whose parameters changed without a step since the last look, and look again."""
        before, self._last = self._last, self._take()
        self._stepped.clear()
        if before is None or self._last is None:
            return
        now = dict(zip(self._last.keys, self._last.norms, strict=True))
        still = [(key, old) for key, old in zip(before.keys, before.norms, strict=True) if key in now]
        still = [(key, old) for key, old in still if key[0] not in before.stepped]
        old, new = _numbers([one for _, one in still]), _numbers([now[key] for key, _ in still])
        moved = [name for ((_, name), _), a, b in zip(still, old, new, strict=True) if a != b and (a == a or b == b)]
        for hook in self._hooks() if moved else ():
            for name in moved:
                if hook.hook.selector.matches(name):
                    yield Imbalance(
                        "TH707",
                        "the program wrote to it, or loaded a checkpoint, or its optimizer has no step hooks",
                        "use grad_accumulated if the program trains it so, because grad_final and update need a step",
                        hook=hook.hook.id,
                        point=hook.hook.at,
                        target=name,
                        severity="note",
                    )

    def _hooks(self) -> list[HookData]:
        return [one for one in self._ledger.hooks if one.active and one.hook.at in ("grad_final", "update")]

    def _take(self) -> _Digest | None:
        model = self._model()
        if model is None or not self._hooks():
            return None
        found = {(id(p), n.names[0]): _local(p) for p, n in named_parameters(model).items() if _is_readable(p)}
        with torch.no_grad():
            norms = list(private.foreach_norm(list(found.values()))) if found else []
        return _Digest(list(found), norms, set())


def _local(parameter: Any) -> Tensor:
    local: Tensor = parameter.detach()
    to_local = getattr(local, "to_local", None)
    return local if to_local is None else to_local()


def _is_readable(parameter: Tensor) -> bool:
    plain = type(parameter) is nn.Parameter and parameter.is_floating_point() and parameter.layout is torch.strided
    # PyTorch computes no norms of numbers with 8 or fewer bits.
    return plain and parameter.element_size() > 1 and parameter.device.type != "meta"


def _numbers(tensors: list[Tensor]) -> list[float]:
    """Read tensors, once for each device."""
    found: dict[int, float] = {}
    for device in {one.device for one in tensors}:
        here = [i for i, one in enumerate(tensors) if one.device == device]
        read = torch.stack([tensors[i].double() for i in here]).tolist()
        found.update(zip(here, read, strict=True))
    return [found[i] for i in range(len(tensors))]
