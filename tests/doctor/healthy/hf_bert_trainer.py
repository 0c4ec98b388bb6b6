"""Fine-tune a tiny BERT with the Trainer; hooks take the pooled output and log gradient norms of the classifier."""

import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

torch.manual_seed(0)

config = BertConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, num_labels=2
)
model = BertForSequenceClassification(config)
pooled, classifier_norms = [], []
model.bert.pooler.register_forward_hook(lambda m, args, out: pooled.append(out.detach().mean()))
model.classifier.weight.register_hook(lambda grad: classifier_norms.append(grad.norm()))

rows = torch.randint(1, 50, (40, 12))
dataset = [{"input_ids": row, "labels": (row[0] > 25).long()} for row in rows]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=5,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=dataset)
    trainer.train()
losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
result = [losses, pooled, classifier_norms, [p.detach().clone() for p in model.parameters()]]
