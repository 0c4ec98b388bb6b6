"""Attach a plan during Lightning training, and store the state of the hooks in Lightning's checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError:  # the older name of the same library
    from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor

from tenterhook.actions import DEFAULT, Registry
from tenterhook.adapters.plan_args import PlanLike, as_plan, check_saveable
from tenterhook.record import Sinks
from tenterhook.rig import Rig, attach


class RigCallback(Callback):  # type: ignore[misc]
    """A callback that attaches a plan when Lightning training starts, and detaches it when training ends.

    Pass the callback to the trainer: `Trainer(callbacks=[RigCallback(plan)])`. Target names are relative to the
    LightningModule. The state of the hooks is saved in the trainer's checkpoints.

    Args:
        plan: A plan, a hook or several hooks.
        sinks: Sinks for the recorded rows, as in `th.attach`.
        actions: Registry of the actions that the plan names.
        tensors: Tensor parameters of actions, by the names that the plan uses.

    Attributes:
        plan: The plan.
        rig: The rig of the most recent training run, or None before the first run. The rig is
            detached when training ends.

    Example:
        >>> import tenterhook as th
        >>> from lightning.pytorch import Trainer
        >>> from tenterhook.adapters.lightning import RigCallback
        >>> callback = RigCallback(th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(1.0)))
        >>> trainer = Trainer(callbacks=[callback], accelerator="cpu", logger=False, enable_checkpointing=False)
        >>> callback.rig is None  # until trainer.fit(...) has started
        True
    """

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
        """Return this callback's key in a checkpoint. Plans with different hook ids have different keys."""
        return str(self._generate_state_key(hooks=[hook.id for hook in self.plan]))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Attach the plan and load the state of the hooks. Lightning calls this method.

        Args:
            trainer: The trainer.
            pl_module: The module being trained.

        Raises:
            TenterhookError: The plan cannot be attached, or the state in the checkpoint does not fit the rig.
        """
        # By this point, every strategy has wrapped the module and restored the checkpoint.
        optimizers = trainer.optimizers
        optimizer = optimizers[0] if len(optimizers) == 1 else optimizers or None
        self.rig = attach(pl_module, self.plan, optimizer=optimizer, **self._options)
        if self._state:
            self.rig.load_state_dict(self._state)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the hooks for a checkpoint. Lightning calls this method.

        Returns:
            The state, which is empty if the plan cannot be saved.
        """
        if self.rig is not None and self.rig.attached and self._saveable:
            self._state = self.rig.state_dict()
        return dict(self._state)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the state from a checkpoint until training starts. Lightning calls this method.

        Args:
            state_dict: The state that `state_dict()` returned.
        """
        self._state = state_dict

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Detach the plan after an error, and let the flight recorders write a report. Lightning calls this method.

        Args:
            trainer: The trainer.
            pl_module: The module being trained.
            exception: The error.
        """
        self._end(exception)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Detach the plan. Lightning calls this method when training ends.

        Args:
            trainer: The trainer.
            pl_module: The module that was trained.
            stage: Name of the stage that ends.
        """
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        if self.rig is not None and self.rig.attached:
            self.state_dict()  # a checkpoint may be saved after training has ended
            self.rig.__exit__(type(error) if error is not None else None, error, None)
