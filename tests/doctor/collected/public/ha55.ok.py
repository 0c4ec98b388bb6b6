"""A Trainer callback that logs the size of the gradients at the encoder layers of a BERT tagger."""
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForTokenClassification,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB = 50
LENGTH = 8


class ParityTags(Dataset):
    """Tag 1 where the previous token is odd."""

    def __init__(self, size, seed):
        generator = torch.Generator().manual_seed(seed)
        self.input_ids = torch.randint(0, VOCAB, (size, LENGTH), generator=generator)
        self.labels = self.input_ids.roll(1, dims=1) % 2

    def __len__(self):
        return len(self.input_ids)

    def __getitem__(self, i):
        return {"input_ids": self.input_ids[i], "labels": self.labels[i]}


class GradientLog(TrainerCallback):
    def __init__(self):
        self.handles = []
        self.pending = {}
        self.history = []

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        for i, layer in enumerate(model.bert.encoder.layer):
            self.handles.append(layer.register_full_backward_hook(self.make_hook(i)))

    def make_hook(self, i):
        def hook(module, grad_input, grad_output):
            self.pending.setdefault(i, []).append(grad_output[0].norm().item())

        return hook

    def on_optimizer_step(self, args, state, control, **kwargs):
        self.history.append({i: (sum(v) / len(v), len(v)) for i, v in self.pending.items()})
        self.pending = {}

    def on_train_end(self, args, state, control, **kwargs):
        for handle in self.handles:
            handle.remove()
        self.handles.clear()


def main():
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=16,
        num_labels=2,
    )
    model = BertForTokenClassification(config)
    log = GradientLog()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=10,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            learning_rate=2e-3,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            dataloader_pin_memory=False,
            seed=0,
        )
        trainer = Trainer(model=model, args=arguments, train_dataset=ParityTags(128, seed=1), callbacks=[log])
        trainer.remove_callback(PrinterCallback)
        trainer.train()

    print(f"optimizer steps logged: {len(log.history)}")
    for step in (0, len(log.history) - 1):
        for i, (norm, passes) in sorted(log.history[step].items()):
            print(f"step {step} layer {i}: gradient norm {norm:.5f} over {passes} micro-batches")


if __name__ == "__main__":
    main()
