"""Language-model style training with the optimizer fused into the backward pass."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(5)
torch.set_num_threads(1)

VOCAB, CONTEXT = 40, 8


class TinyLM(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.mix = nn.Linear(CONTEXT * dim, 64)
        self.out = nn.Linear(64, VOCAB)

    def forward(self, tokens):
        h = self.embed(tokens).flatten(1)
        return self.out(F.gelu(self.mix(h)))


class FusedTrainer:
    """One Adam per parameter; the gradient is freed as soon as it was used."""

    def __init__(self, model, lr, accumulation):
        self.model = model
        self.accumulation = accumulation
        self.boundary = False
        self.effective_batches = 0
        self.optimizers = {p: torch.optim.Adam([p], lr=lr) for p in model.parameters()}
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(self.step_parameter)

    def step_parameter(self, param):
        optimizer = self.optimizers[param]
        optimizer.step()
        optimizer.zero_grad()

    def train(self, batches):
        total = 0.0
        for i, (tokens, target) in enumerate(batches):
            self.boundary = (i + 1) % self.accumulation == 0
            loss = F.cross_entropy(self.model(tokens), target)
            (loss / self.accumulation).backward()
            total += loss.item()
            if self.boundary:
                self.effective_batches += 1
        return total / len(batches)

    def updates(self):
        param, optimizer = next(iter(self.optimizers.items()))
        return int(optimizer.state[param]["step"].item())


def make_batches(n, size=16):
    stream = torch.randint(0, VOCAB, (n * size + CONTEXT,))
    stream[1::2] = (stream[::2][: len(stream[1::2])] * 3 + 1) % VOCAB
    windows = stream.unfold(0, CONTEXT + 1, 1)
    windows = windows[torch.randperm(len(windows))][: n * size]
    return [(w[:, :CONTEXT], w[:, CONTEXT]) for w in windows.split(size)]


def main():
    batches = make_batches(64)
    trainer = FusedTrainer(TinyLM(), lr=3e-3, accumulation=4)
    epochs = 3
    for epoch in range(epochs):
        print(f"epoch {epoch}: loss {trainer.train(batches):.3f}")
    planned = trainer.effective_batches
    print(f"micro-batches {epochs * len(batches)}, effective batches {planned}")
    print(f"parameter updates beyond the schedule: {trainer.updates() - planned}")


if __name__ == "__main__":
    main()
