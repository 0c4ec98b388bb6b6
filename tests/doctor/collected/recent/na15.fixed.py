"""Fine-tune a small BERT classifier and freeze the layers whose gradients have
become small (automatic layer freezing, decided after every epoch)."""
import torch
from transformers import BertConfig, BertForSequenceClassification

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB, SEQ, EPOCHS, STEPS = 40, 10, 3, 12
FREEZE_BELOW = 1e-4

cfg = BertConfig(
    vocab_size=VOCAB, hidden_size=32, num_hidden_layers=4, num_attention_heads=4,
    intermediate_size=64, max_position_embeddings=32, num_labels=2,
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)


class GradientMeter:
    """Sums squared gradients per encoder layer while backward is running."""

    def __init__(self, layers):
        self.layers = layers
        self.energy = [0.0] * len(layers)
        self.calls = 0
        self.accumulators = []
        for idx, layer in enumerate(layers):
            for param in layer.parameters():
                self._watch(idx, param)

    def _watch(self, idx, param):
        def after_accumulation(*unused):
            self.energy[idx] += param.grad.pow(2).sum().item()
            self.calls += 1

        accumulator = param.expand_as(param).grad_fn.next_functions[0][0]
        accumulator.register_hook(after_accumulation)
        self.accumulators.append(accumulator)

    def epoch_norms(self, steps):
        norms = [(e / steps) ** 0.5 for e in self.energy]
        self.energy = [0.0] * len(self.layers)
        return norms


def batch(gen):
    ids = torch.randint(1, VOCAB, (16, SEQ), generator=gen)
    return ids, (ids[:, :5].sum(1) > ids[:, 5:].sum(1)).long()


gen = torch.Generator().manual_seed(1)
model = BertForSequenceClassification(cfg)
layers = list(model.bert.encoder.layer)
meter = GradientMeter(layers)
optim = torch.optim.AdamW(model.parameters(), lr=1e-3)

frozen = set()
model.train()
for epoch in range(EPOCHS):
    total = 0.0
    for _ in range(STEPS):
        ids, labels = batch(gen)
        loss = model(input_ids=ids, labels=labels).loss
        optim.zero_grad()
        loss.backward()
        optim.step()
        total += loss.item()
    norms = meter.epoch_norms(STEPS)
    print(f"epoch {epoch}: loss {total / STEPS:.4f}, layer gradient norms {[round(n, 4) for n in norms]}")
    for idx, norm in enumerate(norms):
        if idx not in frozen and norm < FREEZE_BELOW:
            layers[idx].requires_grad_(False)
            frozen.add(idx)

print(f"gradient updates measured: {meter.calls}")
print(f"frozen layers: {len(frozen)} of {len(layers)}")
