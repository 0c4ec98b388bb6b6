"""python -m tests.adapters.programs.transformers_program OUT [--die-at STEP] [--resume]"""

from __future__ import annotations

import os
import signal
import warnings
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from tenterhook.adapters.transformers import RigCallback
from tests.adapters.programs.plan import digest, options, plan

warnings.simplefilter("ignore")
STEPS = 14


class Tokens(Dataset[dict[str, torch.Tensor]]):
    def __init__(self) -> None:
        self.data = torch.randint(32, (128, 12), generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.data[index], "labels": self.data[index]}


class Tell(TrainerCallback):
    def __init__(self, rigged: RigCallback, die_at: int | None) -> None:
        self.rigged, self.die_at = rigged, die_at

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.die_at and state.global_step >= self.die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_train_end(self, args: Any, state: Any, control: Any, *, model: torch.nn.Module, **kwargs: Any) -> None:
        assert self.rigged.rig is not None
        print(state.global_step, self.rigged.rig.step_count, digest(model, self.rigged.rig))


def main() -> None:
    given = options()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=2, n_head=2))
    args = TrainingArguments(
        given.out, max_steps=STEPS, per_device_train_batch_size=4, gradient_accumulation_steps=2, save_steps=4,
        report_to="none", use_cpu=True, disable_tqdm=True, logging_strategy="no", seed=0, learning_rate=1e-2,
    )  # fmt: skip
    rigged = RigCallback(plan())
    trainer = Trainer(model, args, train_dataset=Tokens())
    trainer.add_callback(Tell(rigged, given.die_at))
    trainer.add_callback(rigged)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(given.out) if given.resume else None)


if __name__ == "__main__":
    main()
