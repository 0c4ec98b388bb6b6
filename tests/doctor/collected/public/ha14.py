"""Count silent neurons of a BERT classifier while the Trainer trains it."""
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

torch.set_num_threads(1)
torch.manual_seed(0)

VOCAB = 60
LENGTH = 8
EPOCHS = 2


class MarkerDataset(Dataset):
    """Label 1 if token 7 occurs in the sentence."""

    def __init__(self, size, seed):
        generator = torch.Generator().manual_seed(seed)
        self.input_ids = torch.randint(8, VOCAB, (size, LENGTH), generator=generator)
        self.labels = torch.randint(0, 2, (size,), generator=generator)
        self.input_ids[self.labels == 1, 3] = 7

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"input_ids": self.input_ids[i], "labels": self.labels[i]}


class NeuronStatistics(TrainerCallback):
    """Share of training tokens for which each intermediate neuron is active."""

    def __init__(self):
        self.active = {}
        self.tokens = {}
        self.handles = []

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        for idx, layer in enumerate(model.bert.encoder.layer):
            self.active[idx] = torch.zeros(model.config.intermediate_size)
            self.tokens[idx] = 0
            self.handles.append(layer.intermediate.register_forward_hook(self.make_hook(idx)))

    def make_hook(self, idx):
        def hook(module, args, output):
            flat = output.detach().flatten(0, 1)
            self.active[idx] += (flat > 0).sum(dim=0)
            self.tokens[idx] += len(flat)

        return hook

    def on_train_end(self, args, state, control, **kwargs):
        for handle in self.handles:
            handle.remove()
        self.handles.clear()


def main():
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=16,
        hidden_act="relu",
        num_labels=2,
    )
    model = BertForSequenceClassification(config)
    train_set, eval_set = MarkerDataset(96, seed=1), MarkerDataset(64, seed=2)
    statistics = NeuronStatistics()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=EPOCHS,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=32,
            learning_rate=1e-3,
            eval_strategy="epoch",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            dataloader_pin_memory=False,
            seed=0,
        )
        trainer = Trainer(
            model=model, args=arguments, train_dataset=train_set, eval_dataset=eval_set, callbacks=[statistics]
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    losses = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    print("eval loss per epoch: " + ", ".join(f"{loss:.4f}" for loss in losses))
    print(f"tokens in the training data: {len(train_set) * LENGTH * EPOCHS}")
    for idx, active in statistics.active.items():
        share = active / statistics.tokens[idx]
        print(f"layer {idx}: tokens {statistics.tokens[idx]}, mean activity {share.mean():.4f}, lowest {share.min():.4f}")


if __name__ == "__main__":
    main()
