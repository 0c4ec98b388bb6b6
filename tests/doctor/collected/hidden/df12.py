"""Extend a vocabulary: the old rows stay as they are, only the new ones learn."""
import io

import torch
from torch import nn

torch.set_num_threads(1)
OLD, NEW, DIM = 20, 4, 8


class Tagger(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.emb = nn.Embedding(vocab, DIM)
        self.rnn = nn.GRU(DIM, 12, batch_first=True)
        self.out = nn.Linear(12, 3)

    def forward(self, tokens):
        hidden, _ = self.rnn(self.emb(tokens))
        return self.out(hidden)


def pretrained_checkpoint():
    torch.manual_seed(42)
    buf = io.BytesIO()
    torch.save(Tagger(OLD).state_dict(), buf)
    buf.seek(0)
    return torch.load(buf)


def widen(state):
    """Append fresh rows for the new tokens to the stored embedding."""
    rows = torch.randn(NEW, DIM) * 0.02
    state["emb.weight"] = torch.cat([state["emb.weight"], rows])
    return state


def protect_old_rows(model):
    def zero_old(grad):
        grad = grad.clone()
        grad[:OLD] = 0
        return grad
    model.emb.weight.register_hook(zero_old)


def main():
    torch.manual_seed(0)
    model = Tagger(OLD + NEW)
    protect_old_rows(model)
    # assign avoids a second copy of the big table
    model.load_state_dict(widen(pretrained_checkpoint()), assign=True)
    for p in model.parameters():
        p.requires_grad_(True)
    start = model.emb.weight.detach().clone()

    opt = torch.optim.SGD(model.parameters(), lr=0.5)
    tokens = torch.randint(0, OLD + NEW, (16, 10))
    tags = tokens % 3
    for step in range(10):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tags.flatten())
        loss.backward()
        opt.step()
    print(f"loss after tuning {loss.item():.4f}")

    moved = (model.emb.weight.detach() - start).abs().amax(dim=1)
    print(f"old rows changed: {(moved[:OLD] > 0).sum().item()} of {OLD}")
    print(f"new rows changed: {(moved[OLD:] > 0).sum().item()} of {NEW}")


if __name__ == "__main__":
    main()
