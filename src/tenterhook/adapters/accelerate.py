"""Save and load hook state with Accelerate's `save_state` and `load_state`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
from accelerate import Accelerator

from tenterhook.rig import Rig

FILE = "tenterhook.safetensors"


def keep(accelerator: Accelerator, rig: Rig) -> Callable[[], None]:
    """Save and load a rig's state together with an accelerator's state.

    Call this function after `accelerator.prepare` and `th.attach`. `accelerator.save_state` then writes the file
    `tenterhook.safetensors`, and `accelerator.load_state` reads it. Loading a checkpoint without this file leaves
    the rig unchanged.

    Args:
        accelerator: The accelerator that saves and loads checkpoints.
        rig: The rig whose state is saved and loaded.

    Returns:
        A function without arguments that excludes the rig's state from later saves and loads.

    Example:
        >>> import os, tempfile
        >>> import torch
        >>> import tenterhook as th
        >>> from accelerate import Accelerator
        >>> from tenterhook.adapters.accelerate import keep
        >>> accelerator = Accelerator(cpu=True)
        >>> model = accelerator.prepare(torch.nn.Linear(2, 1))
        >>> rig = th.attach(model, th.Hook("clip", on="**", at="grad", do=th.clip_norm(1.0)))
        >>> undo = keep(accelerator, rig)
        >>> folder = accelerator.save_state(tempfile.mkdtemp())
        >>> os.path.exists(os.path.join(folder, "tenterhook.safetensors"))
        True
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
