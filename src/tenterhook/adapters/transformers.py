"""transformers: a callback that attaches a plan, and keeps the hooks' state in the Trainer's checkpoints."""

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
    """`Trainer(..., callbacks=[RigCallback(plan)])`. The state lies in `trainer_state.json`, wherever the checkpoint
    is; a plan given as text is a plan file's."""

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
        #: as it lies in the checkpoint
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
        if self.rig is not None:  # the Trainer calls nothing when a training ends with an error
            self.rig.detach()
        while hasattr(optimizer, "optimizer"):  # accelerate wraps it
            optimizer = optimizer.optimizer
        self.rig = attach(model, self.plan, optimizer=optimizer, **self._options)
        kept = self.kept or self._from_checkpoint(state)
        if state.global_step and kept:
            self.rig.load_state_dict(safetensors.torch.load(base64.b64decode(kept)))

    def _from_checkpoint(self, state: TrainerState) -> str:
        """Return the state that a checkpoint holds: the Trainer reads it, and gives it back only on request."""
        found = state.stateful_callbacks.get(type(self).__name__, [])
        several = found if isinstance(found, list) else [found]
        mine = [one for one in several if one["args"].get("plan") == self._plan_text()]
        return str((mine or several or [{"attributes": {}}])[0]["attributes"].get("kept", ""))

    def state(self) -> dict[str, Any]:
        if self.rig is not None and self.rig.attached and self._saveable:
            self.kept = base64.b64encode(safetensors.torch.save(self.rig.state_dict())).decode()
        return {"args": {"plan": self._plan_text()}, "attributes": {"kept": self.kept}}

    def _plan_text(self) -> str:
        return self.plan.to_json() if self._saveable else Plan([]).to_json()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.rig is not None:
            self.rig.detach()
