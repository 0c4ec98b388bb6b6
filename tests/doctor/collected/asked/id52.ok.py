import torch
from torch import nn

torch.set_num_threads(1)


class TagModel(nn.Module):
    def __init__(self, vocab=40, dim=16, tags=5):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.conv = nn.Conv1d(dim, dim, 3, padding=1)
        self.head = nn.Linear(dim, tags)

    def forward(self, tokens):
        x = self.embedding(tokens)
        x = torch.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)
        return self.head(x)


class FusedStepper:
    """Updates every parameter as soon as its gradient is complete, then frees the gradient."""

    def __init__(self, model, accumulate, **options):
        self.accumulate = accumulate
        self.last_micro_batch = False
        self.optimizers = {p: torch.optim.Adam([p], **options) for p in model.parameters()}
        self.handles = [
            p.register_post_accumulate_grad_hook(self._maybe_step) for p in self.optimizers
        ]

    def _maybe_step(self, param):
        if self.last_micro_batch:
            self.optimizers[param].step()
            self.optimizers[param].zero_grad()

    def backward(self, losses):
        for index, loss in enumerate(losses):
            self.last_micro_batch = index == self.accumulate - 1
            (loss / self.accumulate).backward()

    def close(self):
        for handle in self.handles:
            handle.remove()
        self.handles.clear()


def batches(steps, accumulate):
    generator = torch.Generator().manual_seed(9)
    for _ in range(steps):
        tokens = torch.randint(0, 40, (accumulate, 8, 10), generator=generator)
        yield [(part, part % 5) for part in tokens]


def loss_of(model, tokens, tags):
    return nn.functional.cross_entropy(model(tokens).flatten(0, 1), tags.flatten())


def train_fused(steps=15, accumulate=2):
    torch.manual_seed(1)
    model = TagModel()
    stepper = FusedStepper(model, accumulate, lr=1e-2)
    for parts in batches(steps, accumulate):
        stepper.backward(loss_of(model, *part) for part in parts)
    stepper.close()
    left_over = sum(p.grad is not None for p in model.parameters())
    print(f"gradients still held: {left_over}")
    return model


def train_plain(steps=15, accumulate=2):
    torch.manual_seed(1)
    model = TagModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for parts in batches(steps, accumulate):
        optimizer.zero_grad()
        for part in parts:
            (loss_of(model, *part) / accumulate).backward()
        optimizer.step()
    return model


def main():
    fused, plain = train_fused(), train_plain()
    gap = max((a - b).abs().max().item() for a, b in zip(fused.parameters(), plain.parameters()))
    print(f"same weights as the plain loop: {gap < 1e-6}")
    ((tokens, tags), *_), = batches(1, 2)
    with torch.no_grad():
        print(f"loss {loss_of(fused, tokens, tags).item():.3f}")


if __name__ == "__main__":
    main()
