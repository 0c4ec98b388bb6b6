"""What a rig tells those who record: its plan and ledger, why it tripped, what they cannot see."""

from __future__ import annotations

import json
import weakref
from collections import Counter
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tenterhook.errors import TenterhookError
from tenterhook.plan import Plan
from tenterhook.record import ModelSnapshot
from tenterhook.resolve.targets import names_of
from tenterhook.rig.ledger import Ledger
from tenterhook.rig.runtime.attached_hook import LiveHook

if TYPE_CHECKING:
    from tenterhook.rig.rig import Rig


def why(trips: list[tuple[LiveHook, Tensor]]) -> str:
    where = [(live, live.names[int(trip.nonzero()[0])]) for live, trip in trips if bool(trip.any())]
    live, target = where[0]
    return f"{live.definition.name} {live.hook.id!r} tripped at {target!r}"


@torch.no_grad()
def scene(ref: weakref.ref[Rig]) -> ModelSnapshot | None:
    """What the flight recorder is told of the model: where its hooks are, when they fired, how large the weights."""
    rig = ref()
    model = rig._rigging.model() if rig is not None else None
    if rig is None or model is None:
        return None
    lives = rig._rigging.lives
    parameters = {n: p for n, t in names_of(model, {}).parameters.items() if (p := t.parameter()) is not None}
    norms = [float(norm) for norm in torch._foreach_norm([p.detach().float() for p in parameters.values()])]
    return ModelSnapshot(
        rig.step_count,
        {id: live.hook.at for id, live in lives.items()},
        {id: {site.name: site.order for site in live.sites} for id, live in lives.items()},
        dict(zip(parameters, norms, strict=True)),
    )


def accounts(ledger: Ledger) -> str:
    """Of each hook, what came of it: in sums, for there may be a hundred thousand sites."""
    rows = [
        {
            "hook": id, "at": account.hook.at, "do": account.hook.doing, "sites": len(account), "due": account.due,
            "fired": account.fired, "changed": account.changed, "failed": account.failed, "skipped": account.skipped,
            "dormant": dict(Counter(account.dormant.values())), "measured": account.measured,
        }
        for id, account in ledger.items()
    ]  # fmt: skip
    return json.dumps({"tenterhook": 1, "ledger": rows}, indent=1)


def written(plan: Plan) -> str:
    """As a plan file; or what it would have been, and why it is none."""
    try:
        return plan.to_json()
    except TenterhookError as error:
        return json.dumps({"why": str(error), "hooks": [repr(hook) for hook in plan]})
