"""Evaluate a BERT classifier and keep the first batch's features as a drift reference."""
import torch
from transformers import BertConfig, BertForSequenceClassification

torch.manual_seed(17)
torch.set_num_threads(1)


def make_task(n, gen):
    ids = torch.randint(5, 60, (n, 8), generator=gen)
    return ids, (ids[:, 1] > 32).long()


def fit(model, gen, steps=60):
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model.train()
    for _ in range(steps):
        ids, labels = make_task(32, gen)
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        opt.step()
        opt.zero_grad()
    return loss.item()


def attach_reference(model):
    """reference[name] holds the hidden states of the very first batch that comes by."""
    reference, handles = {}, []
    for i, layer in enumerate(model.bert.encoder.layer):
        handles.append(layer.register_forward_hook(
            lambda module, args, output, key=f"layer{i}": reference.setdefault(key, output.detach())))
    return reference, handles


@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    correct = total = 0
    for i, (ids, labels) in enumerate(batches):
        logits = model(input_ids=ids).logits
        hits = int((logits.argmax(-1) == labels).sum())
        correct += hits
        total += len(labels)
        print(f"  batch {i}: {hits}/{len(labels)} correct, mean logit gap {(logits[:, 1] - logits[:, 0]).mean():.4f}")
    return correct / total


def main():
    gen = torch.Generator().manual_seed(5)
    cfg = BertConfig(vocab_size=60, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                     num_attention_heads=4, max_position_embeddings=16, num_labels=2, initializer_range=0.1,
                     hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = BertForSequenceClassification(cfg)
    print(f"training loss {fit(model, gen):.4f}")

    batches = [make_task(24, gen) for _ in range(4)]
    reference, handles = attach_reference(model)
    print("evaluation with the reference recorder:")
    accuracy = evaluate(model, batches)
    print(f"accuracy {accuracy:.3f}")
    for key, value in reference.items():
        print(f"{key}: reference of shape {tuple(value.shape)}, rms {value.pow(2).mean().sqrt():.3f}")
    for h in handles:
        h.remove()


main()
