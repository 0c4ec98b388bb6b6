"""Train a small text classifier on top of pretrained word vectors.

Rows of known words keep the pretrained vectors, only the rows of words that
were missing from the vector file are learned.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB, KNOWN, DIM, CLASSES = 120, 90, 24, 3


class BagOfWords(nn.Module):
    def __init__(self, vectors):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, DIM)
        with torch.no_grad():
            self.embedding.weight[:KNOWN] = vectors
        self.hidden = nn.Linear(DIM, 32)
        self.out = nn.Linear(32, CLASSES)

        trainable = torch.zeros(VOCAB, 1)
        trainable[KNOWN:] = 1.0
        self.register_buffer("trainable_rows", trainable)
        self.embedding.weight.register_hook(self.keep_pretrained)

    def keep_pretrained(self, grad):
        return grad * self.trainable_rows

    def forward(self, tokens):
        x = self.embedding(tokens).mean(dim=1)
        return self.out(torch.relu(self.hidden(x)))


def make_data(n=600, length=12):
    tokens = torch.randint(0, VOCAB, (n, length))
    score = torch.stack([(tokens % 3 == c).float().sum(1) for c in range(CLASSES)], dim=1)
    return tokens, score.argmax(1)


def accuracy(model, tokens, labels):
    with torch.no_grad():
        return (model(tokens).argmax(1) == labels).float().mean().item()


def main():
    vectors = torch.randn(KNOWN, DIM)
    tokens, labels = make_data()
    model = BagOfWords(vectors)
    others = [p for p in model.parameters() if p is not model.embedding.weight]
    optimizer = torch.optim.SGD(
        [{"params": others}, {"params": [model.embedding.weight], "weight_decay": 0.0}],
        lr=0.5, weight_decay=1e-3,
    )

    for epoch in range(15):
        order = torch.randperm(len(tokens))
        running = 0.0
        for batch in order.split(50):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(tokens[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            running += loss.item() * len(batch)
        if epoch % 5 == 4:
            print(f"epoch {epoch + 1}: loss {running / len(tokens):.4f}")

    print(f"train accuracy {accuracy(model, tokens, labels):.3f}")
    kept = model.embedding.weight.detach()[:KNOWN]
    rows = (kept != vectors).any(dim=1).sum().item()
    print(f"pretrained rows that differ from the vector file: {rows} of {KNOWN}")
    print(f"norm of pretrained block: {vectors.norm():.3f} -> {kept.norm():.3f}")


if __name__ == "__main__":
    main()
