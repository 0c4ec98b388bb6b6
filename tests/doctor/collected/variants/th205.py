"""Continual learning of a bag-of-words tagger: old tokens stay fixed while the vocabulary grows."""
import torch
import torch.nn.functional as F
from torch import nn


class GrowingTagger(nn.Module):
    def __init__(self, vocab, dim=12, tags=3, protected=10):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.tagger = nn.ModuleList([nn.Linear(dim, dim), nn.Linear(dim, tags)])
        self.protected = protected
        self.embedding.weight.register_hook(self._protect_rows)

    def _protect_rows(self, grad):
        grad = grad.clone()
        grad[: self.protected] = 0
        return grad

    def grow(self, extra):
        old = self.embedding.weight.data
        fresh = torch.randn(extra, old.shape[1]) * old.std()
        self.embedding.weight = nn.Parameter(torch.cat([old, fresh]))
        self.embedding.num_embeddings += extra

    def forward(self, ids):
        hidden = torch.relu(self.tagger[0](self.embedding(ids)))
        return self.tagger[1](hidden)


class Session:
    def __init__(self, model, lr=0.1):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr)

    def run(self, ids, tags, steps):
        for _ in range(steps):
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(ids).flatten(0, 1), tags.flatten())
            loss.backward()
            self.optimizer.step()
        return loss.item()


def main():
    torch.manual_seed(0)
    vocab = 20
    model = GrowingTagger(vocab)
    corpora = [("news", 0), ("medical", 8), ("legal", 5)]
    for name, extra in corpora:
        if extra:
            model.grow(extra)
            vocab += extra
        before = model.embedding.weight[: model.protected].detach().clone()
        ids = torch.randint(0, vocab, (16, 9))
        loss = Session(model).run(ids, torch.randint(0, 3, (16, 9)), steps=5)
        drift = (model.embedding.weight[: model.protected] - before).abs().max()
        print(f"{name:8s} vocab {vocab} loss {loss:.3f} drift of protected rows {drift.item():.5f}")


if __name__ == "__main__":
    main()
