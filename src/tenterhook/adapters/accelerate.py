"""Accelerate: the hooks' state goes with `save_state` and `load_state`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
from accelerate import Accelerator

from tenterhook.rig import Rig

FILE = "tenterhook.safetensors"


def keep(accelerator: Accelerator, rig: Rig) -> Callable[[], None]:
    """Save and load the rig's state with the accelerator's; call it after `accelerator.prepare` and `th.attach`.

    Returns a function that undoes it. A checkpoint that was saved without hooks leaves the rig as it is.
    """

    def save(models: Any, weights: Any, output_dir: str) -> None:
        if accelerator.is_main_process:
            safetensors.torch.save_file(rig.state_dict(), Path(output_dir) / FILE)

    def load(models: Any, input_dir: str) -> None:
        file = Path(input_dir) / FILE
        rig.load_state_dict(safetensors.torch.load_file(file) if file.exists() else {})

    handles = [accelerator.register_save_state_pre_hook(save), accelerator.register_load_state_pre_hook(load)]

    def undo() -> None:
        for handle in handles:
            handle.remove()

    return undo
