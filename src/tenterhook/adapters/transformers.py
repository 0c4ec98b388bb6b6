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
from tenterhook.adapters.plan_args import Given, as_plan, can_be_kept
from tenterhook.plan import Plan
from tenterhook.record import Sinks
from tenterhook.rig import Rig, attach


class RigCallback(TrainerCallback, ExportableState):  # type: ignore[misc]
    """`Trainer(..., callbacks=[RigCallback(plan)])`. The state lies in `trainer_state.json`, wherever the checkpoint
    is; a plan given as text is a plan file's."""

    def __init__(
        self,
        plan: Given | str,
        *,
        sinks: Sinks = (),
        actions: Registry = DEFAULT,
        tensors: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.plan = Plan.from_json(plan) if isinstance(plan, str) else as_plan(plan)
        self._keeps = can_be_kept(self.plan)
        self.rig: Rig | None = None
        self._given: dict[str, Any] = {"sinks": sinks, "actions": actions, "tensors": tensors}
        #: as it lies in the checkpoint
        self.kept = ""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *,
        model: nn.Module, optimizer: Any = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        if self.rig is not None:  # the Trainer does not say when a training ended with an error
            self.rig.detach()
        while hasattr(optimizer, "optimizer"):  # accelerate's stands around it
            optimizer = optimizer.optimizer
        self.rig = attach(model, self.plan, optimizer=optimizer, **self._given)
        kept = self.kept or self._found(state)
        if state.global_step and kept:
            self.rig.load_state_dict(safetensors.torch.load(base64.b64decode(kept)))

    def _found(self, state: TrainerState) -> str:
        """What a checkpoint holds: the Trainer reads it, and gives it back only if it is told to."""
        found = state.stateful_callbacks.get(type(self).__name__, [])
        several = found if isinstance(found, list) else [found]
        mine = [one for one in several if one["args"].get("plan") == self._text()]
        return str((mine or several or [{"attributes": {}}])[0]["attributes"].get("kept", ""))

    def state(self) -> dict[str, Any]:
        if self.rig is not None and self.rig.attached and self._keeps:
            self.kept = base64.b64encode(safetensors.torch.save(self.rig.state_dict())).decode()
        return {"args": {"plan": self._text()}, "attributes": {"kept": self.kept}}

    def _text(self) -> str:
        return self.plan.to_json() if self._keeps else Plan([]).to_json()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.rig is not None:
            self.rig.detach()
