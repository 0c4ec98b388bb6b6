"""Gradient x input importance of the tokens of a sentence."""
import torch
import torch.nn as nn

torch.manual_seed(3)
torch.set_num_threads(1)

WORDS = "the film was slow but the acting is truly wonderful and moving".split()
VOCAB = {w: i for i, w in enumerate(sorted(set(WORDS)))}


class SentimentModel(nn.Module):
    def __init__(self, dim=16, max_len=32):
        super().__init__()
        self.embed = nn.Embedding(len(VOCAB), dim)
        self.position = nn.Parameter(torch.randn(max_len, dim) * 0.1)
        self.encoder = nn.GRU(dim, dim, batch_first=True)
        self.classify = nn.Linear(dim, 2)
        self.keep_embedded = False
        self.embedded = None

    def forward(self, tokens):
        embedded = self.embed(tokens)
        if self.keep_embedded:
            embedded.retain_grad()
        embedded = embedded + self.position[: tokens.size(1)]
        if self.keep_embedded:
            self.embedded = embedded
        states, _ = self.encoder(embedded)
        return self.classify(states.mean(dim=1))


def fit(model, steps=60):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    tokens = torch.randint(0, len(VOCAB), (64, len(WORDS)))
    good = torch.tensor([VOCAB["wonderful"], VOCAB["moving"]])
    labels = torch.isin(tokens, good).any(dim=1).long()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens), labels)
        loss.backward()
        optimizer.step()
    return loss.item()


def token_importance(model, tokens, target):
    model.keep_embedded = True
    model.zero_grad()
    model(tokens)[0, target].backward()
    embedded = model.embedded
    grad = embedded.grad
    model.keep_embedded = False
    model.embedded = None
    if grad is None:
        grad = torch.zeros_like(embedded)
    return (grad * embedded.detach()).sum(dim=-1)[0]


def main():
    model = SentimentModel()
    print(f"training loss {fit(model):.3f}")
    tokens = torch.tensor([[VOCAB[w] for w in WORDS]])
    scores = token_importance(model, tokens, target=1)
    scale = scores.abs().max().clamp(min=1e-12)
    for word, score in zip(WORDS, (scores / scale).tolist()):
        print(f"{word:10s} {score:+.2f}")
    print(f"largest raw importance: {scores.abs().max().item():.6f}")


if __name__ == "__main__":
    main()
