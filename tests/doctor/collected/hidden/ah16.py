"""Trainer run with an activation log that is meant for the evaluation passes only."""
import tempfile
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback
from transformers import TrainingArguments
from transformers.trainer_callback import PrinterCallback

torch.set_num_threads(1)


class Toy(Dataset):
    def __init__(self, n, seed):
        gen = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(5, 60, (n, 6), generator=gen)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": (self.ids[i, 1] > 32).long()}


class EvalActivations(TrainerCallback):
    """Mean absolute pooled feature per evaluation; training batches are skipped."""

    def __init__(self, pooler):
        self.sum = self.rows = self.skipped = 0
        self.handle = pooler.register_forward_hook(self._collect)
        self.history = []

    def _collect(self, module, args, output):
        if module.training:
            self.skipped += 1
            return
        self.sum += output.abs().mean(1).sum().item()
        self.rows += len(output)

    def on_evaluate(self, args, state, control, **kwargs):
        self.history.append((state.global_step, self.rows, self.sum / self.rows))
        self.sum = self.rows = 0

    def on_train_end(self, args, state, control, **kwargs):
        self.handle.remove()


def main():
    torch.manual_seed(50)
    model = BertForSequenceClassification(BertConfig(
        vocab_size=60, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=4, max_position_embeddings=16, num_labels=2))
    log = EvalActivations(model.bert.pooler)
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(), num_train_epochs=2, per_device_train_batch_size=8,
        per_device_eval_batch_size=8, eval_strategy="epoch", learning_rate=2e-3, seed=50,
        save_strategy="no", logging_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True)
    trainer = Trainer(model=model, args=args, train_dataset=Toy(32, 1), eval_dataset=Toy(20, 2),
                      callbacks=[log])
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    for step, rows, mean in log.history:
        print(f"step {step}: {rows} evaluation rows, mean pooled magnitude {mean:.4f}")
    print("training batches skipped by the hook:", log.skipped)
    print("hooks left on the pooler:", len(model.bert.pooler._forward_hooks))


if __name__ == "__main__":
    main()
