"""Define the observers that reduce the bits of a tensor to one number, so that two runs can be compared exactly."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from tenterhook.actions.context import Context
from tenterhook.actions.definition import FORWARD_POINTS, TENSOR_POINTS
from tenterhook.actions.registry import BUILTIN, action
from tenterhook.actions.stats import unmeasurable

#: bits of a digest, which is exact as a float64
BITS = 44
#: number of elements that are mixed at a time
_CHUNK = 2**20
#: odd constants of the SplitMix64 generator, as signed integers
_STEP, _FIRST, _SECOND = -7046029254386353131, -4658895280553007687, -7723592293110705685
#: numbers the calls in the order in which they happen
_calls = itertools.count()
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def digest_of(x: Tensor) -> Tensor:
    """Return a digest of the bits of a tensor, as a whole number below 2**44 in a float64.

    The digest depends on the position of each element, so that it differs if two elements are exchanged. Of a sharded
    tensor, it is the digest of the shard of this rank.
    """
    if x.layout is not torch.strided:
        raise unmeasurable(x)
    sharded: Any = x
    x = sharded.to_local() if hasattr(x, "to_local") else x
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


@action("digest", registry=BUILTIN, at=TENSOR_POINTS)
def digest(x: Tensor, ctx: Context) -> None:
    """Compute a digest of the bits of the value in each call, to compare two runs exactly.

    The recorded number is `digest`, a whole number. It differs if one bit differs, or if two elements are exchanged
    (except by a chance of about one in 10**13). At forward points, `order` is recorded too: it grows from call to call,
    over all targets. Digests can be compared only between runs on the same kind of device with the same number of
    ranks. Of a sharded tensor, each rank digests its own shard.

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
    ctx.emit("digest", digest_of(x))
    if ctx.point in FORWARD_POINTS:
        ctx.emit("order", next(_calls))


@action("weight_digest", registry=BUILTIN, at=("grad_final", "update"))
def weight_digest(x: Tensor, ctx: Context) -> None:
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
    ctx.emit("digest", digest_of(ctx.value))
