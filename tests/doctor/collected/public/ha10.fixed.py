"""Distil a four-layer BERT into a two-layer BERT with a logit loss and a hidden-state loss."""
import torch
import torch.nn.functional as F
from transformers import BertConfig, BertForSequenceClassification

torch.set_num_threads(1)

VOCAB = 80
LAYER_MAP = {0: 1, 1: 3}


def build_bert(layers, seed):
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=3,
        initializer_range=0.2,
    )
    return BertForSequenceClassification(config)


class LayerFeatures:
    """Keeps the latest output of the chosen encoder layers."""

    def __init__(self, model, layers):
        self.features = {}
        self.handles = [
            model.bert.encoder.layer[i].register_forward_hook(self.make_hook(i)) for i in layers
        ]

    def make_hook(self, layer):
        def hook(module, args, output):
            self.features[layer] = output

        return hook

    def close(self):
        for handle in self.handles:
            handle.remove()


def batches(steps, batch_size=16, length=12):
    generator = torch.Generator().manual_seed(8)
    for _ in range(steps):
        yield torch.randint(0, VOCAB, (batch_size, length), generator=generator)


def distil(hidden_weight, steps=40):
    teacher = build_bert(4, seed=1).eval()
    student = build_bert(2, seed=2).train()
    teacher_features = LayerFeatures(teacher, LAYER_MAP.values())
    student_features = LayerFeatures(student, LAYER_MAP.keys())
    optimizer = torch.optim.Adam(student.parameters(), lr=2e-3)
    history = []
    for input_ids in batches(steps):
        with torch.no_grad():
            target = teacher(input_ids=input_ids).logits
        logits = student(input_ids=input_ids).logits
        logit_loss = F.kl_div(logits.log_softmax(-1), target.softmax(-1), reduction="batchmean")
        hidden_loss = sum(
            F.mse_loss(student_features.features[s], teacher_features.features[t]) for s, t in LAYER_MAP.items()
        )
        loss = logit_loss + hidden_weight * hidden_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append((logit_loss.item(), hidden_loss.item()))
    teacher_features.close()
    student_features.close()
    return history


def main():
    for hidden_weight in (0.0, 2.0):
        history = distil(hidden_weight)
        first, last = history[0], history[-1]
        print(f"hidden weight {hidden_weight}: logit loss {first[0]:.4f} -> {last[0]:.4f}")
        print(f"hidden-state loss {first[1]:.4f} -> {last[1]:.4f}")


if __name__ == "__main__":
    main()
