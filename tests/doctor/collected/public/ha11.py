"""Monitor how large the gradients are that flow back into the parts of a BERT classifier."""
from collections import defaultdict

import torch
from transformers import BertConfig, BertForSequenceClassification

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB = 90
CLASSES = 3


def build_model():
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=CLASSES,
    )
    return BertForSequenceClassification(config)


class GradientFlow:
    """Records the norm of the gradient with respect to the output of each watched part."""

    def __init__(self, parts):
        self.norms = defaultdict(list)
        self.handles = [
            module.register_full_backward_pre_hook(self.make_hook(name)) for name, module in parts.items()
        ]
        self.names = list(parts)

    def make_hook(self, name):
        def hook(module, grad_output):
            self.norms[name].append(grad_output[0].norm().item())

        return hook

    def close(self):
        for handle in self.handles:
            handle.remove()

    def report(self):
        for name in self.names:
            values = self.norms[name]
            mean = sum(values) / len(values) if values else 0.0
            print(f"{name:<12} steps {len(values):>3}  mean gradient norm {mean:.6f}")


def batches(steps, batch_size=16, length=10):
    generator = torch.Generator().manual_seed(2)
    for _ in range(steps):
        labels = torch.randint(0, CLASSES, (batch_size,), generator=generator)
        input_ids = torch.randint(0, 30, (batch_size, length), generator=generator)
        yield input_ids + 30 * labels[:, None], labels


def main(steps=30):
    model = build_model().train()
    bert = model.bert
    flow = GradientFlow(
        {
            "layer 0": bert.encoder.layer[0],
            "encoder": bert.encoder,
            "pooler": bert.pooler,
            "classifier": model.classifier,
        }
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    correct = 0
    for step, (input_ids, labels) in enumerate(batches(steps), start=1):
        outputs = model(input_ids=input_ids, labels=labels)
        optimizer.zero_grad()
        outputs.loss.backward()
        optimizer.step()
        correct += (outputs.logits.argmax(dim=-1) == labels).sum().item()
        if step % 10 == 0:
            print(f"step {step}: loss {outputs.loss.item():.4f}, running accuracy {correct / (step * 16):.3f}")
    flow.close()
    flow.report()


if __name__ == "__main__":
    main()
