"""Fine-tuning with a memory-saving trainer: one AdamW per parameter, run during backward.

The trainer has the usual interface (optimizer, scheduler, step) so it can be swapped with
the ordinary one. The learning rate is warmed up and then decays linearly to zero.
"""
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

torch.set_num_threads(1)
EPOCHS, BATCH, BASE_LR = 6, 32, 5e-3


class Classifier(nn.Module):
    def __init__(self, vocab=50, dim=32, classes=4):
        super().__init__()
        self.embed = nn.EmbeddingBag(vocab, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Linear(dim, classes))

    def forward(self, ids):
        return self.mlp(self.embed(ids))


def linear_schedule(optimizer, warmup, total):
    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        return max(0.0, (total - step) / (total - warmup))
    return LambdaLR(optimizer, factor)


class LowMemoryTrainer:
    def __init__(self, model, total_steps):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=BASE_LR)
        self.scheduler = linear_schedule(self.optimizer, total_steps // 10, total_steps)
        self.per_param = {}
        for p in model.parameters():
            self.per_param[p] = torch.optim.AdamW([p], lr=BASE_LR)
            p.register_post_accumulate_grad_hook(self.apply_now)

    def apply_now(self, p):
        self.per_param[p].step()
        self.per_param[p].zero_grad(set_to_none=True)

    def step(self, ids, labels):
        loss = nn.functional.cross_entropy(self.model(ids), labels)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.scheduler.step()
        return loss.item()


def make_corpus(n=640):
    g = torch.Generator().manual_seed(2)
    y = torch.randint(0, 4, (n,), generator=g)
    topic = y[:, None] * 12 + torch.randint(0, 12, (n, 10), generator=g)
    noise = torch.randint(0, 50, (n, 10), generator=g)
    keep = torch.rand(n, 10, generator=g) < 0.35
    return torch.where(keep, topic, noise), y


def main():
    torch.manual_seed(0)
    ids, y = make_corpus()
    model = Classifier()
    steps = len(ids) // BATCH
    trainer = LowMemoryTrainer(model, EPOCHS * steps)
    for epoch in range(EPOCHS):
        perm = torch.randperm(len(ids))
        total = sum(trainer.step(ids[b], y[b]) for b in perm.split(BATCH))
        lr = trainer.scheduler.get_last_lr()[0]
        print(f"epoch {epoch} loss {total / steps:.4f} next lr {lr:.5f}")
    before = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    trainer.step(ids[:BATCH], y[:BATCH])
    after = nn.utils.parameters_to_vector(model.parameters()).detach()
    print(f"largest weight change in one more step: {(after - before).abs().max().item():.6f}")


if __name__ == "__main__":
    main()
