"""Write a rig's plan and ledger into the run folders, and take a snapshot of the model for a flight report."""

from __future__ import annotations

import json
import weakref
from collections import Counter
from functools import partial

import torch

from tenterhook import torch_internals as private
from tenterhook.errors import TenterhookError
from tenterhook.plan import Plan
from tenterhook.record import LEDGER, PLAN, ModelSnapshot, Recorder
from tenterhook.resolve.targets import targets_of
from tenterhook.rig.files.model_file import ModelWriter
from tenterhook.rig.installer import Installer
from tenterhook.rig.ledger import Ledger


@torch.no_grad()
def model_snapshot(ref: weakref.ref[Installer]) -> ModelSnapshot | None:
    """Return the hooks' points, the order in which their sites fired, and the norms of the parameters.

    Return None if the model no longer exists.
    """
    installer = ref()
    model = installer.environment.model.root() if installer is not None else None
    if installer is None or model is None:
        return None
    hooks = installer.hooks
    parameters = {n: p for n, t in targets_of(model, {}).parameters.items() if (p := t.parameter()) is not None}
    norms = [float(norm) for norm in private.foreach_norm([p.detach().float() for p in parameters.values()])]
    return ModelSnapshot(
        installer.environment.clock.step,
        {id: hook.hook.at for id, hook in hooks.items()},
        {id: {site.name: site.order for site in hook.sites} for id, hook in hooks.items()},
        dict(zip(parameters, norms, strict=True)),
    )


class RunFiles:
    """Writes the plan, the ledger and the layers of the model into the run folders."""

    def __init__(self, installer: Installer, recorder: Recorder) -> None:
        self._recorder = recorder
        self._model = ModelWriter(installer, recorder)

    def begin(self, plan: Plan) -> None:
        """Write the plan and the layers."""
        self.write_plan(plan)
        self._model.begin()

    def write_plan(self, plan: Plan) -> None:
        """Write the plan, which may have changed."""
        self._recorder.errors.contain("writing the plan", self._recorder.write_sidecar, PLAN, partial(plan_json, plan))

    def end_step(self) -> None:
        """Write the layers again if their order has become known."""
        self._model.end_step()

    def close(self, ledger: Ledger) -> None:
        """Write the ledger, and the layers as they are at the end."""
        errors = self._recorder.errors
        errors.contain("writing the ledger", self._recorder.write_sidecar, LEDGER, partial(ledger_json, ledger))
        self._model.close()


def ledger_json(ledger: Ledger) -> str:
    """Return each hook's totals as JSON. Individual sites are omitted, because there may be a hundred thousand."""
    rows = [
        {
            "hook": id,
            "at": account.hook.at,
            "do": account.hook.doing,
            "sites": len(account),
            "due": account.due,
            "fired": account.fired,
            "changed": account.changed,
            "failed": account.failed,
            "skipped": account.skipped,
            "dormant": dict(Counter(account.dormant.values())),
            "measured": account.measured,
        }
        for id, account in ledger.items()
    ]
    return json.dumps({"tenterhook": 1, "ledger": rows}, indent=1)


def plan_json(plan: Plan) -> str:
    """Return the plan as JSON. If the plan cannot be saved, return JSON with the reason and the hooks as text."""
    try:
        return plan.to_json()
    except TenterhookError as error:
        return json.dumps({"why": str(error), "hooks": [repr(hook) for hook in plan]})
