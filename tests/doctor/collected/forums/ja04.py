"""Which words does the sentiment LSTM look at? Gradient norms per position."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(3)
torch.set_num_threads(1)

WORDS = ["the", "film", "was", "plot", "a", "and", "with", "great", "awful", "actors"]
POSITIVE, NEGATIVE = WORDS.index("great"), WORDS.index("awful")


class SentimentLSTM(nn.Module):
    def __init__(self, vocab, dim=16, hidden=24):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.lstm = nn.LSTM(dim, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)
        self.position_grads = None

    def forward(self, tokens):
        embedded = self.embedding(tokens)
        if self.position_grads is not None:
            self.watch(embedded)
        states, _ = self.lstm(embedded)
        return self.out(states[:, -1]).squeeze(-1)

    def watch(self, embedded):
        for position in range(embedded.shape[1]):
            embedded[:, position].register_hook(self.recorder(position))

    def recorder(self, position):
        def record(grad):
            self.position_grads[position] = grad.norm(dim=-1)
        return record


def make_batch(n=64, length=6):
    tokens = torch.randint(0, 7, (n, length))
    labels = torch.randint(0, 2, (n,))
    position = torch.randint(0, length, (n,))
    cue = torch.where(labels == 1, POSITIVE, NEGATIVE)
    tokens[torch.arange(n), position] = cue
    return tokens, labels.float()


def train(model, steps=150):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(steps):
        tokens, labels = make_batch()
        loss = F.binary_cross_entropy_with_logits(model(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"final training loss {loss.item():.4f}")


def word_importance(model, tokens):
    model.position_grads = {}
    model.zero_grad()
    model(tokens).sum().backward()
    importance = torch.zeros(tokens.shape)
    for position, norms in model.position_grads.items():
        importance[:, position] = norms
    model.position_grads = None
    return importance


def main():
    model = SentimentLSTM(len(WORDS))
    train(model)

    tokens, labels = make_batch(n=4)
    importance = word_importance(model, tokens)
    for row, scores in zip(tokens.tolist(), importance):
        words = [f"{WORDS[t]}({s:.2f})" for t, s in zip(row, scores.tolist())]
        print(" ".join(words))
    covered = (importance > 0).any(dim=0).sum().item()
    print(f"positions with a gradient: {covered} of {tokens.shape[1]}")


if __name__ == "__main__":
    main()
