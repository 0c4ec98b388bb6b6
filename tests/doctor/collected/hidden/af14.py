"""Trainer run with a max-norm constraint on the rows of the embedding table."""
import tempfile
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback

torch.set_num_threads(1)
MAX_ROW = 0.12


class Reviews(Dataset):
    def __init__(self, n=48):
        gen = torch.Generator().manual_seed(1)
        self.ids = torch.randint(5, 90, (n, 8), generator=gen)
        self.labels = (self.ids[:, 1] > 47).long()

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.labels[i]}


def row_norms(model):
    return model.bert.embeddings.word_embeddings.weight.detach().norm(dim=1)


def constrain_rows(optimizer, weight, limit):
    """After each update, rows that are too long are pulled back to the sphere."""
    def hook(opt, args, kwargs):
        with torch.no_grad():
            norms = weight.norm(dim=1, keepdim=True).clamp_min(1e-12)
            weight.mul_((limit / norms).clamp(max=1.0))

    return optimizer.register_step_post_hook(hook)


def main():
    torch.manual_seed(13)
    cfg = BertConfig(vocab_size=90, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                     num_attention_heads=4, max_position_embeddings=32, num_labels=2,
                     hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = BertForSequenceClassification(cfg)
    print(f"longest row at the start: {row_norms(model).max().item():.3f}")

    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(), num_train_epochs=3, per_device_train_batch_size=8,
        learning_rate=2e-3, lr_scheduler_type="constant", weight_decay=0.0, seed=13,
        save_strategy="no", logging_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, weight_decay=0.0)
    handle = constrain_rows(optimizer, model.bert.embeddings.word_embeddings.weight, MAX_ROW)

    trainer = Trainer(model=model, args=args, train_dataset=Reviews())
    trainer.remove_callback(PrinterCallback)
    result = trainer.train()
    handle.remove()

    norms = row_norms(model)
    print(f"{result.global_step} steps, training loss {result.training_loss:.4f}")
    print(f"longest row at the end: {norms.max().item():.3f}")
    print("rows over the limit:", int((norms > MAX_ROW + 1e-5).sum()), "of", len(norms))


if __name__ == "__main__":
    main()
