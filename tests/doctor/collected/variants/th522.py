"""Which heads of a small BERT look at the first token? Collect the attention maps during evaluation."""
import torch
from transformers import BertConfig, BertForSequenceClassification


class AttentionCollector:
    def __init__(self, model):
        self.maps = []
        self._handles = {}
        for index, layer in enumerate(model.bert.encoder.layer):
            self._handles[index] = layer.attention.self.register_forward_hook(self)

    def __call__(self, module, args, output):
        context, weights = output[0], output[1]
        self.maps.append(weights)

    def first_token_score(self):
        scores = []
        for weights in self.maps:
            if weights is not None:
                scores.append(weights[..., 0].mean().item())
        return scores

    def close(self):
        for handle in self._handles.values():
            handle.remove()


def build():
    config = BertConfig(
        vocab_size=60,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=20,
        num_labels=2,
    )
    return BertForSequenceClassification(config)


@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    correct = 0
    for ids, labels in batches:
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
        correct += (logits.argmax(dim=1) == labels).sum().item()
    return correct


def main():
    torch.manual_seed(0)
    model = build()
    collector = AttentionCollector(model)
    batches = [(torch.randint(60, (4, 12)), torch.randint(2, (4,))) for _ in range(2)]
    correct = evaluate(model, batches)
    print("correct", correct, "of 8")
    print("maps collected", len(collector.maps), "types", {type(m).__name__ for m in collector.maps})
    print("scores of the first token", collector.first_token_score())
    collector.close()


if __name__ == "__main__":
    main()
