"""The HF Trainer with a small BERT for sequence classification, with warm-up, linear decay and gradient clipping."""

import hashlib
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, PrinterCallback, Trainer, TrainingArguments


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


class Votes(Dataset):
    """Sequences that contain more tokens of the first or of the second half of the vocabulary."""

    def __init__(self, n):
        self.ids = torch.randint(2, 40, (n, 12))
        self.labels = ((self.ids > 20).sum(1) > 6).long()

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "attention_mask": torch.ones(12, dtype=torch.long), "labels": self.labels[i]}


torch.set_num_threads(1)
torch.manual_seed(55)
data, test = Votes(1600), Votes(300)
model = BertForSequenceClassification(
    BertConfig(
        vocab_size=40,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=16,
    )
)
with tempfile.TemporaryDirectory() as folder:
    args = TrainingArguments(
        folder,
        per_device_train_batch_size=16,
        max_steps=600,
        learning_rate=2e-3,
        warmup_steps=50,
        weight_decay=0.01,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        seed=55,
        use_cpu=True,
        disable_tqdm=True,
        dataloader_num_workers=0,
    )
    trainer = Trainer(model=model, args=args, train_dataset=data)
    trainer.remove_callback(PrinterCallback)  # it prints times
    trainer.train()
model.eval()
with torch.no_grad():
    acc = (model(input_ids=test.ids).logits.argmax(1) == test.labels).float().mean().item()
print(f"accuracy {acc:.3f}")
assert acc > 0.9
print("digest", digest(model))
