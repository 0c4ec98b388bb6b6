"""Attach a plan during training with a transformers Trainer, and store the state of the hooks in its checkpoints."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import safetensors.torch
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from tenterhook.actions import DEFAULT, Registry
from tenterhook.adapters.plan_args import PlanLike, as_plan, check_saveable
from tenterhook.plan import Plan
from tenterhook.record import Sinks
from tenterhook.rig import Rig, attach


class RigCallback(TrainerCallback, ExportableState):  # type: ignore[misc]
    """A callback that attaches a plan when a transformers Trainer starts training, and detaches it when training ends.

    Pass the callback to the trainer: `Trainer(..., callbacks=[RigCallback(plan)])`. The state of the hooks is saved in
    the file `trainer_state.json` of each checkpoint.

    Args:
        plan: A plan, a hook, several hooks, or the JSON text of a plan.
        sinks: Sinks for the recorded rows, as in `th.attach`.
        actions: Registry of the actions that the plan names.
        tensors: Tensor parameters of actions, by the names that the plan uses.

    Attributes:
        plan: The plan.
        rig: The rig of the most recent training run, or None before the first run. The rig is
            detached when training ends.
        kept: The state of the hooks as text, in the form stored in checkpoints.

    Example:
        >>> import tenterhook as th
        >>> from tenterhook.adapters.transformers import RigCallback
        >>> callback = RigCallback(th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(1.0)))
        >>> callback.rig is None  # until trainer.train() has started
        True
    """

    def __init__(
        self,
        plan: PlanLike | str,
        *,
        sinks: Sinks = (),
        actions: Registry = DEFAULT,
        tensors: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.plan = Plan.from_json(plan) if isinstance(plan, str) else as_plan(plan)
        self._saveable = check_saveable(self.plan)
        self.rig: Rig | None = None
        self._options: dict[str, Any] = {"sinks": sinks, "actions": actions, "tensors": tensors}
        #: the state of the hooks as text, in the form stored in checkpoints
        self.kept = ""

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        model: nn.Module,
        optimizer: Any = None,
        **kwargs: Any,
    ) -> None:
        """Attach the plan and load the state of the hooks. The Trainer calls this method.

        Args:
            args: The training arguments.
            state: The trainer's state.
            control: The trainer's control object.
            model: The model being trained.
            optimizer: The optimizer, which may be wrapped by Accelerate.
            **kwargs: Other arguments from the trainer, which are ignored.

        Raises:
            TenterhookError: The plan cannot be attached, or the state in the checkpoint does not fit the rig.
        """
        if self.rig is not None:  # if an error ends training, the Trainer does not call on_train_end
            self.rig.detach()
        while hasattr(optimizer, "optimizer"):  # Accelerate wraps the optimizer
            optimizer = optimizer.optimizer
        self.rig = attach(model, self.plan, optimizer=optimizer, **self._options)
        kept = self.kept or self._from_checkpoint(state)
        if state.global_step and kept:
            self.rig.load_state_dict(safetensors.torch.load(base64.b64decode(kept)))

    def _from_checkpoint(self, state: TrainerState) -> str:
        """Return the state of the hooks from a checkpoint.

        The Trainer loads the states of all callbacks into `state`, but restores the callbacks only if
        `restore_callback_states_from_checkpoint` is set.
        """
        found = state.stateful_callbacks.get(type(self).__name__, [])
        several = found if isinstance(found, list) else [found]
        mine = [one for one in several if one["args"].get("plan") == self._plan_text()]
        return str((mine or several or [{"attributes": {}}])[0]["attributes"].get("kept", ""))

    def state(self) -> dict[str, Any]:
        """Return the plan and the state of the hooks for a checkpoint. The Trainer calls this method.

        Returns:
            A dict with the callback's arguments and attributes.
        """
        if self.rig is not None and self.rig.attached and self._saveable:
            self.kept = base64.b64encode(safetensors.torch.save(self.rig.state_dict())).decode()
        return {"args": {"plan": self._plan_text()}, "attributes": {"kept": self.kept}}

    def _plan_text(self) -> str:
        return self.plan.to_json() if self._saveable else Plan([]).to_json()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Detach the plan. The Trainer calls this method.

        Args:
            args: The training arguments.
            state: The trainer's state.
            control: The trainer's control object.
            **kwargs: Other arguments from the trainer, which are ignored.
        """
        if self.rig is not None:
            self.rig.detach()
