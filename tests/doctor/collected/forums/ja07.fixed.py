"""Small language model trained with the optimizer fused into the backward pass."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(6)
torch.set_num_threads(1)

VOCAB = 24


class CharModel(nn.Module):
    def __init__(self, vocab=VOCAB, dim=24, hidden=32):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.gru = nn.GRU(dim, hidden, batch_first=True)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, tokens):
        states, _ = self.gru(self.embedding(tokens))
        return self.out(states)


class FusedTrainer:
    def __init__(self, model, lr, micro_batch, accumulate):
        self.model = model
        self.micro_batch = micro_batch
        self.accumulate = accumulate
        self.batches = 0
        self.last_micro_batch = False
        self.optimizers = {p: torch.optim.Adam([p], lr=lr) for p in model.parameters()}
        for param in model.parameters():
            param.register_post_accumulate_grad_hook(self.update)

    def update(self, param):
        if not self.last_micro_batch:
            return
        optimizer = self.optimizers[param]
        optimizer.step()
        optimizer.zero_grad()

    def train_batch(self, tokens):
        total = 0.0
        micro_batches = tokens.split(self.micro_batch)
        for i, micro in enumerate(micro_batches):
            self.last_micro_batch = i == len(micro_batches) - 1
            logits = self.model(micro[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), micro[:, 1:].flatten())
            loss = loss / self.accumulate
            loss.backward()
            total += loss.item()
        self.batches += 1
        return total

    def updates(self):
        counts = {int(o.state[p]["step"]) for p, o in self.optimizers.items()}
        return max(counts)


def make_corpus(n=256, length=20):
    start = torch.randint(0, VOCAB, (n, 1))
    stride = torch.randint(1, 4, (n, 1))
    return (start + stride * torch.arange(length)) % VOCAB


def main():
    corpus = make_corpus()
    model = CharModel()
    trainer = FusedTrainer(model, lr=3e-3, micro_batch=8, accumulate=4)

    for epoch in range(3):
        losses = []
        for batch in torch.randperm(len(corpus)).split(32):
            losses.append(trainer.train_batch(corpus[batch]))
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.4f}")

    print(f"batches seen: {trainer.batches}, updates per batch: {trainer.updates() / trainer.batches:.1f}")


if __name__ == "__main__":
    main()
