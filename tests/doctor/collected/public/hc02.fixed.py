"""Character language model trained with the optimizer step fused into the backward pass."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(11)

TEXT = ("the quick brown fox jumps over the lazy dog while the slow red hen watches the "
        "small grey cat sleep under the old oak tree near the quiet river bank ") * 12
CONTEXT = 24
MICRO_BATCH = 8
ACCUM_STEPS = 4
LOGICAL_STEPS = 20


class CharModel(nn.Module):
    def __init__(self, vocab, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.gru = nn.GRU(dim, dim, batch_first=True)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens):
        hidden, _ = self.gru(self.embed(tokens))
        return self.head(self.norm(hidden))


class FusedTrainer:
    """Keeps one Adam instance per parameter so that no full set of gradients is ever held."""

    def __init__(self, model, lr):
        self.model = model
        self.optimizers = {p: torch.optim.Adam([p], lr=lr) for p in model.parameters()}
        self.micro_step = 0
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(self.apply_update)

    def apply_update(self, param):
        if self.micro_step % ACCUM_STEPS != 0:
            return
        self.optimizers[param].step()
        self.optimizers[param].zero_grad()

    def train_step(self, batches):
        total = 0.0
        for x, y in batches:
            self.micro_step += 1
            logits = self.model(x)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
            (loss / ACCUM_STEPS).backward()
            total += loss.item()
        return total / len(batches)

    def updates(self):
        weight = self.model.head.weight
        return int(self.optimizers[weight].state[weight]["step"])


def build_vocab(text):
    chars = sorted(set(text))
    return {c: i for i, c in enumerate(chars)}


def sample_batch(data, generator):
    starts = torch.randint(0, len(data) - CONTEXT - 1, (MICRO_BATCH,), generator=generator)
    x = torch.stack([data[s:s + CONTEXT] for s in starts])
    y = torch.stack([data[s + 1:s + CONTEXT + 1] for s in starts])
    return x, y


def main():
    vocab = build_vocab(TEXT)
    data = torch.tensor([vocab[c] for c in TEXT])
    model = CharModel(len(vocab))
    trainer = FusedTrainer(model, lr=5e-3)
    generator = torch.Generator().manual_seed(0)

    for step in range(1, LOGICAL_STEPS + 1):
        batches = [sample_batch(data, generator) for _ in range(ACCUM_STEPS)]
        loss = trainer.train_step(batches)
        if step % 5 == 0:
            print(f"step {step:3d}  loss {loss:.4f}  effective batch {ACCUM_STEPS * MICRO_BATCH}")
    print(f"micro batches {trainer.micro_step}, logical steps {LOGICAL_STEPS}, "
          f"Adam updates of the head {trainer.updates()}")


if __name__ == "__main__":
    main()
