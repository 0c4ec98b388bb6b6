"""Two-phase vocabulary extension: first only the new rows learn, then the whole table."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(51)
torch.set_num_threads(1)

OLD_VOCAB = 30
NEW_VOCAB = 36


class BagClassifier(nn.Module):
    def __init__(self, vocab, dim=16, classes=3):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.out = nn.Linear(dim, classes)

    def forward(self, tokens):
        return self.out(self.embedding(tokens).mean(dim=1))


class RowFreezer:
    """Zeroes the gradient of the first rows of a weight until released."""

    def __init__(self, weight, rows):
        mask = torch.ones(weight.shape[0], 1)
        mask[:rows] = 0.0
        self.mask = mask
        self.handle = weight.register_hook(self.apply)

    def apply(self, grad):
        return grad * self.mask

    def release(self):
        self.handle.remove()


def make_data(vocab, token_class, n=256, length=5):
    tokens = torch.randint(0, vocab, (n, length))
    votes = F.one_hot(token_class[tokens], 3).sum(dim=1)
    return tokens, votes.argmax(dim=1)


def train(model, optimizer, tokens, labels, epochs):
    for _ in range(epochs):
        for batch in torch.randperm(len(tokens)).split(32):
            loss = F.cross_entropy(model(tokens[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return loss.item()


def extend(model, new_vocab):
    old = model.embedding.weight.detach()
    extended = nn.Embedding(new_vocab, old.shape[1])
    with torch.no_grad():
        extended.weight[:len(old)] = old
        extended.weight[len(old):] = old.mean(dim=0)
    model.embedding = extended


def drift(model, reference):
    return (model.embedding.weight.detach()[:OLD_VOCAB] - reference).abs().max().item()


def main():
    token_class = torch.arange(NEW_VOCAB) % 3
    model = BagClassifier(OLD_VOCAB)
    tokens, labels = make_data(OLD_VOCAB, token_class)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    print(f"pretraining loss {train(model, optimizer, tokens, labels, 20):.3f}")

    extend(model, NEW_VOCAB)
    reference = model.embedding.weight.detach()[:OLD_VOCAB].clone()
    tokens, labels = make_data(NEW_VOCAB, token_class)

    freezer = RowFreezer(model.embedding.weight, OLD_VOCAB)
    optimizer = torch.optim.SGD([model.embedding.weight], lr=0.5)
    loss = train(model, optimizer, tokens, labels, 10)
    print(f"phase 1: loss {loss:.3f}  drift of the old rows {drift(model, reference):.6f}")

    freezer.release()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-4)
    loss = train(model, optimizer, tokens, labels, 10)
    print(f"phase 2: loss {loss:.3f}  old rows moved: {drift(model, reference) > 1e-3}")


if __name__ == "__main__":
    main()
