"""Sentiment classifier: pretrained word vectors stay as they are, new domain words are learned."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(3)

N_PRETRAINED = 200      # rows 0..199 come from a vector file
N_NEW = 40              # rows 200..239 are words of our domain
DIM = 24


class BagClassifier(nn.Module):
    def __init__(self, vectors):
        super().__init__()
        self.emb = nn.Embedding(N_PRETRAINED + N_NEW, DIM)
        with torch.no_grad():
            self.emb.weight[:N_PRETRAINED] = vectors
        self.fc = nn.Linear(DIM, 2)

    def forward(self, tokens):
        return self.fc(self.emb(tokens).mean(dim=1))


def keep_pretrained_rows(emb, n):
    """Only the rows from n on receive a gradient; the pretrained ones are left alone."""
    mask = torch.ones_like(emb.weight)
    mask[:n] = 0
    return emb.weight.register_hook(lambda grad: grad * mask)


vectors = torch.randn(N_PRETRAINED, DIM)
model = BagClassifier(vectors)
keep_pretrained_rows(model.emb, N_PRETRAINED)

tokens = torch.randint(0, N_PRETRAINED + N_NEW, (600, 10))
labels = (tokens.ge(N_PRETRAINED).sum(dim=1) > 1).long()
train_x, train_y = tokens[:500], labels[:500]
val_x, val_y = tokens[500:], labels[500:]

optimizer = torch.optim.AdamW([
    {"params": model.emb.parameters(), "weight_decay": 0.0},
    {"params": model.fc.parameters()},
], lr=5e-3, weight_decay=0.1)

for epoch in range(8):
    model.train()
    order = torch.randperm(len(train_x))
    total = 0.0
    for i in range(0, len(order), 50):
        idx = order[i:i + 50]
        optimizer.zero_grad()
        loss = F.cross_entropy(model(train_x[idx]), train_y[idx])
        loss.backward()
        optimizer.step()
        total += loss.item()
    model.eval()
    with torch.no_grad():
        acc = (model(val_x).argmax(1) == val_y).float().mean().item()
    print(f"epoch {epoch}: train loss {total / 10:.3f}  val acc {acc:.2f}")

with torch.no_grad():
    now = model.emb.weight[:N_PRETRAINED]
    print(f"pretrained vectors: mean length {vectors.norm(dim=1).mean():.4f} -> {now.norm(dim=1).mean():.4f}")
    print(f"largest change of a pretrained entry: {(now - vectors).abs().max():.5f}")
