"""Lightning: a callback that attaches a plan, and keeps the hooks' state in Lightning's checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError:  # the same library under its older name
    from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor

from tenterhook.actions import DEFAULT, Registry
from tenterhook.adapters.plan_args import PlanLike, as_plan, check_saveable
from tenterhook.record import Sinks
from tenterhook.rig import Rig, attach


class RigCallback(Callback):  # type: ignore[misc]
    """`Trainer(callbacks=[RigCallback(plan)])`. The targets are those of the LightningModule; `rig` is the last fit's,
    detached when that has ended."""

    def __init__(
        self,
        plan: PlanLike,
        *,
        sinks: Sinks = (),
        actions: Registry = DEFAULT,
        tensors: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.plan = as_plan(plan)
        self._saveable = check_saveable(self.plan)
        self.rig: Rig | None = None
        self._options: dict[str, Any] = {"sinks": sinks, "actions": actions, "tensors": tensors}
        self._state: dict[str, Tensor] = {}

    @property
    def state_key(self) -> str:
        """The key in the checkpoint; the hooks' ids tell two plans in one checkpoint apart."""
        return str(self._generate_state_key(hooks=[hook.id for hook in self.plan]))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Every strategy has wrapped the module and restored the checkpoint by now, in whatever order.
        optimizers = trainer.optimizers
        optimizer = optimizers[0] if len(optimizers) == 1 else optimizers or None
        self.rig = attach(pl_module, self.plan, optimizer=optimizer, **self._options)
        if self._state:
            self.rig.load_state_dict(self._state)

    def state_dict(self) -> dict[str, Any]:
        if self.rig is not None and self.rig.attached and self._saveable:
            self._state = self.rig.state_dict()
        return dict(self._state)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._state = state_dict

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._end(exception)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        if self.rig is not None and self.rig.attached:
            self.state_dict()  # a checkpoint may still be saved after the fit
            self.rig.__exit__(type(error) if error is not None else None, error, None)
