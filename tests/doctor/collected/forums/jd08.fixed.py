"""Memory-saving fine-tuning: parameters are updated while the backward pass runs."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)


class SequenceTagger(nn.Module):
    def __init__(self, vocab=50, dim=32, tags=6):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, tags)

    def forward(self, tokens):
        hidden, _ = self.rnn(self.embed(tokens))
        return self.out(hidden)


class InBackwardTrainer:
    def __init__(self, model, lr=2e-2, accumulate=4):
        self.model = model
        self.accumulate = accumulate
        self.updates = 0
        self.last_part = False
        self.optimizers = {p: torch.optim.AdamW([p], lr=lr) for p in model.parameters()}
        for param in self.optimizers:
            param.register_post_accumulate_grad_hook(self.update)

    def update(self, param):
        if not self.last_part:
            return
        optimizer = self.optimizers[param]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        self.updates += 1

    def train_batch(self, tokens, tags):
        total = 0.0
        micro_tokens = tokens.chunk(self.accumulate)
        micro_tags = tags.chunk(self.accumulate)
        for index, (part, labels) in enumerate(zip(micro_tokens, micro_tags)):
            self.last_part = index == len(micro_tokens) - 1
            logits = self.model(part)
            loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten()) / self.accumulate
            loss.backward()
            total += loss.item()
        return total


def make_batch(batch=32, length=12):
    tokens = torch.randint(0, 50, (batch, length))
    tags = (tokens + tokens.roll(1, dims=1)) % 6
    return tokens, tags


def main():
    model = SequenceTagger()
    trainer = InBackwardTrainer(model)
    batches = 80
    for index in range(batches):
        loss = trainer.train_batch(*make_batch())
        if index % 20 == 19:
            print(f"batch {index + 1}: loss {loss:.3f}")
    per_batch = trainer.updates / len(trainer.optimizers) / batches
    print(f"updates per parameter and batch: {per_batch:.0f}")


if __name__ == "__main__":
    main()
