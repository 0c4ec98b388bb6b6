import os
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

torch.set_num_threads(1)

VOCAB_SIZE = 40
SEQ_LEN = 24


class CountingDataset(Dataset):
    """Arithmetic progressions modulo the vocabulary size."""

    def __init__(self, num_examples, seed=0):
        gen = torch.Generator().manual_seed(seed)
        start = torch.randint(0, VOCAB_SIZE, (num_examples, 1), generator=gen)
        stride = torch.randint(1, 4, (num_examples, 1), generator=gen)
        self.input_ids = (start + stride * torch.arange(SEQ_LEN)) % VOCAB_SIZE

    def __len__(self):
        return len(self.input_ids)

    def __getitem__(self, idx):
        ids = self.input_ids[idx]
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}


class LossPrinter(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            print(f"step {state.global_step} loss {logs['loss']!r} lr {logs['learning_rate']!r}")


def main():
    set_seed(11)

    config = GPT2Config(
        vocab_size=VOCAB_SIZE,
        n_positions=SEQ_LEN,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)

    training_args = TrainingArguments(
        output_dir=os.environ.get("SCRIPT_OUT") or tempfile.mkdtemp(),
        per_device_train_batch_size=8,
        max_steps=40,
        learning_rate=5e-3,
        warmup_steps=4,
        weight_decay=0.01,
        lr_scheduler_type="linear",
        logging_strategy="steps",
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
        seed=11,
    )
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=CountingDataset(256),
        callbacks=[LossPrinter()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()

    checksum = sum(p.detach().double().sum().item() for p in model.parameters() if p.requires_grad)
    print(f"checksum {checksum!r}")


if __name__ == "__main__":
    main()
