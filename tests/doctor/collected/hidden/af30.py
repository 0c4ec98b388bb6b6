"""Trainer with model_init (for seeds and searches) and a running activation range per layer."""
import tempfile
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback

torch.set_num_threads(1)


class Counting(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, i):
        ids = (torch.arange(10) * (1 + i % 2) + i) % 40
        return {"input_ids": ids, "labels": ids.clone()}


class RangeTracker:
    """Smallest and largest MLP output of each block during training."""

    def __init__(self):
        self.low, self.high, self.calls = {}, {}, 0

    def attach(self, model):
        for i, block in enumerate(model.transformer.h):
            block.mlp.register_forward_hook(self._make(i))

    def _make(self, i):
        def hook(module, args, output):
            self.calls += 1
            low, high = output.detach().aminmax()
            self.low[i] = min(self.low.get(i, float("inf")), low.item())
            self.high[i] = max(self.high.get(i, float("-inf")), high.item())
        return hook


def model_init():
    return GPT2LMHeadModel(GPT2Config(
        vocab_size=40, n_positions=16, n_embd=24, n_layer=2, n_head=2, bos_token_id=0,
        eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))


def main():
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(), num_train_epochs=2, per_device_train_batch_size=8,
        learning_rate=5e-3, seed=29, save_strategy="no", logging_strategy="no", report_to=[],
        disable_tqdm=True, use_cpu=True)
    trainer = Trainer(model_init=model_init, args=args, train_dataset=Counting())
    trainer.remove_callback(PrinterCallback)

    tracker = RangeTracker()
    tracker.attach(trainer.model)
    result = trainer.train()

    print(f"{result.global_step} steps, mean loss {result.training_loss:.4f}")
    print(f"forward passes of MLPs that were tracked: {tracker.calls}")
    for i in range(2):
        # a missing entry would mean that the block never produced anything
        low, high = tracker.low.get(i, 0.0), tracker.high.get(i, 0.0)
        scale = max(abs(low), abs(high)) / 127
        print(f"block {i}: range [{low:.3f}, {high:.3f}], int8 scale {scale:.5f}")


if __name__ == "__main__":
    main()
