"""Define the observers that reduce the bits of a tensor to one number, so that two runs can be compared exactly."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from tenterhook.actions.definition import TENSOR_POINTS
from tenterhook.actions.registry import BUILTIN, action
from tenterhook.actions.stats import unmeasurable

#: bits of a digest; the sum of the digests of 256 calls is still exact as a float64
BITS = 44
#: number of elements that are mixed at a time
_CHUNK = 2**20
#: odd constants of the SplitMix64 generator, as signed integers
_STEP, _FIRST, _SECOND = -7046029254386353131, -4658895280553007687, -7723592293110705685
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def digest_of(x: Tensor) -> Tensor:
    """Return a digest of the bits of a tensor, as a whole number below 2**44 in a float64.

    The digest depends on the position of each element, so that it differs if two elements are exchanged.
    """
    if x.layout is not torch.strided:
        raise unmeasurable(x)
    x = torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
    bits = x.detach().resolve_neg().contiguous().view(-1)
    bits = bits.view(_INTEGERS[bits.element_size()])
    total = torch.zeros((), dtype=torch.int64, device=x.device)
    for start in range(0, bits.numel(), _CHUNK):
        some = bits[start : start + _CHUNK].to(torch.int64)
        mixed = torch.arange(start + 1, start + 1 + some.numel(), device=x.device).mul_(_STEP).add_(some)
        mixed.bitwise_xor_(mixed >> 30).mul_(_FIRST)
        mixed.bitwise_xor_(mixed >> 27).mul_(_SECOND)
        mixed.bitwise_xor_(mixed >> 31)
        total += mixed.sum()
    return torch.bitwise_and(total, 2**BITS - 1).double()


def _measure_digest(x: Tensor) -> dict[str, Tensor]:
    return {"digest": digest_of(x)}


def _measure_weight(x: Tensor, value: Tensor) -> dict[str, Tensor]:
    return {"digest": digest_of(value)}


@action("digest", registry=BUILTIN, at=TENSOR_POINTS, measure=_measure_digest, partials={"digest": "sum"})
def digest(merged: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Compute a digest of the bits of the value, to compare two runs exactly.

    The recorded number is `digest`, a whole number. It differs if one bit differs, or if two elements are exchanged
    (except by a chance of about one in 10**13). Several calls in a step are added. Digests can be compared only between
    runs on the same kind of device with the same number of ranks.

    Returns:
        An action for `Hook(do=...)`.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> model = torch.nn.Identity()
        >>> rig = th.attach(model, th.Hook("bits", on=".", at="output", do=th.digest()))
        >>> seen = []
        >>> for x in (torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0]), torch.tensor([1.0, 2.0])):
        ...     with rig.step():
        ...         _ = model(x)
        ...     seen.append(rig.values("bits")["."]["digest"])
        >>> seen[0] == seen[1], seen[0] == seen[2]
        (False, True)
    """
    return {"digest": merged["digest"]}


@action(
    "weight_digest",
    registry=BUILTIN,
    at=("grad_final", "update"),
    needs_value=True,
    measure=_measure_weight,
    partials={"digest": "sum"},
)
def weight_digest(merged: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Compute a digest of the bits of the parameter: before the step at `grad_final`, after it at `update`.

    The recorded number is `digest`, as for `digest`.

    Returns:
        An action for `Hook(do=...)`.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        >>> plan = [th.Hook(at, on="**", at=at, do=th.weight_digest()) for at in ("grad_final", "update")]
        >>> rig = th.attach(model, plan, optimizer=optimizer)
        >>> model(torch.ones(1, 1)).sum().backward()
        >>> optimizer.step()
        >>> rig.values("grad_final") == rig.values("update")
        True
    """
    return {"digest": merged["digest"]}
