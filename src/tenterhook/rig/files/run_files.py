"""Write a rig's plan and ledger into the run folders, and take a snapshot of the model for a flight report."""

from __future__ import annotations

import json
import weakref
from collections import Counter
from enum import Enum, auto
from functools import partial

import torch

from tenterhook import torch_internals as private
from tenterhook.errors import TenterhookError
from tenterhook.plan import POINTS, Plan
from tenterhook.record import LEDGER, MODEL, PLAN, ModelSnapshot, Recorder
from tenterhook.resolve.targets import targets_of
from tenterhook.rig.files.model_file import model_json
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


class _Order(Enum):
    """Lists how much is known about the order of the layers."""

    #: no file was written
    UNKNOWN = auto()
    #: the file has the order in which the layers were defined
    DEFINED = auto()
    #: the file has the order in which the layers ran
    RAN = auto()


class RunFiles:
    """Writes the plan, the ledger and the layers of the model into the run folders.

    The layers are first written in the order in which they are defined. The order in which they ran is known when a
    hook in the forward pass has fired. The file is then written again.
    """

    def __init__(self, installer: Installer, recorder: Recorder) -> None:
        self._installer = installer
        self._recorder = recorder
        self._order = _Order.UNKNOWN

    def begin(self, plan: Plan) -> None:
        """Write the plan and the layers."""
        self.write_plan(plan)
        if self._recorder.stores:
            self._write_layers({})
            self._order = _Order.DEFINED

    def write_plan(self, plan: Plan) -> None:
        """Write the plan, which may have changed."""
        self._recorder.errors.contain("writing the plan", self._recorder.write_sidecar, PLAN, partial(plan_json, plan))

    def end_step(self) -> None:
        """Write the layers again, after the first step in which a hook in the forward pass fired."""
        if self._order is _Order.DEFINED and (ran := self._ran()):
            self._write_layers(ran)
            self._order = _Order.RAN

    def close(self, ledger: Ledger) -> None:
        """Write the ledger, and the layers as they are at the end, because the program may have added some."""
        errors = self._recorder.errors
        errors.contain("writing the ledger", self._recorder.write_sidecar, LEDGER, partial(ledger_json, ledger))
        if self._recorder.stores:
            self._write_layers(self._ran())

    def _ran(self) -> dict[str, int]:
        """Return the place of each module in the last forward pass in which hooks fired."""
        hooks = self._installer.hooks.values()
        forward = [hook.sites for hook in hooks if POINTS[hook.resolved.hook.at].side == "forward"]
        # The sites of a hook are examined only if the first one has fired: there may be a hundred thousand.
        fired = [site for sites in forward if sites and sites[0].order >= 0 for site in sites if site.order >= 0]
        last = max((site.last for site in fired), default=-1)
        return {site.name: site.order for site in fired if site.last == last}

    def _write_layers(self, ran: dict[str, int]) -> None:
        model = self._installer.environment.model.root()
        if model is None:
            return
        text = partial(model_json, model, ran, ranks=self._installer.environment.group.size)
        self._recorder.errors.contain("writing the layers", self._recorder.write_sidecar, MODEL, text)


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
