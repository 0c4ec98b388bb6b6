"""Add new tokens to a language model; only the rows of the new tokens should train."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader


class BigramLM(nn.Module):
    def __init__(self, vocab, dim=16):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.out = nn.Linear(dim, vocab)

    def forward(self, ids):
        return self.out(torch.tanh(self.tok(ids)))


class NewTokensOnly:
    """Callable hook that removes the gradient of all rows before `first_new`."""

    def __init__(self, first_new):
        self.first_new = first_new

    def __call__(self, grad):
        keep = torch.arange(len(grad)) >= self.first_new
        return grad * keep.unsqueeze(1)


class Finetuner:
    def __init__(self, model, first_new, lr=1e-2):
        self.model = model
        self.first_new = first_new
        self.handle = model.tok.weight.register_hook(NewTokensOnly(first_new))
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.1)
        self.original = model.tok.weight[:first_new].detach().clone()

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            for batch in loader:
                loss = F.cross_entropy(self.model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                self.optimizer.step()
            self.report(epoch, loss)

    def report(self, epoch, loss):
        rows = self.model.tok.weight[: self.first_new].detach()
        grad = self.model.tok.weight.grad[: self.first_new].abs().max().item()
        drift = (rows - self.original).norm() / self.original.norm()
        print(f"epoch {epoch} loss {loss.item():.3f} old-row gradient {grad:.1f} old-row drift {drift.item():.2%}")


def main():
    torch.manual_seed(0)
    vocab, new = 30, 4
    model = BigramLM(vocab + new)
    corpus = torch.randint(0, vocab + new, (64, 12))
    Finetuner(model, first_new=vocab).fit(DataLoader(corpus, batch_size=16), epochs=4)


if __name__ == "__main__":
    main()
