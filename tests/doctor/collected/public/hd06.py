"""Review classifier with an LSTM and a monitor of the gradient that reaches each layer."""
from collections import defaultdict

import torch
from torch import nn
import torch.nn.functional as F


class ReviewLSTM(nn.Module):
    def __init__(self, vocab=200, width=24, hidden=32):
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.project = nn.Linear(width, width)
        self.lstm = nn.LSTM(width, hidden, batch_first=True)
        self.dense = nn.Linear(hidden, 16)
        self.head = nn.Linear(16, 2)

    def forward(self, tokens):
        x = torch.tanh(self.project(self.embedding(tokens)))
        _, (hidden, _) = self.lstm(x)
        return self.head(F.relu(self.dense(hidden[-1])))


class GradientMonitor:
    def __init__(self):
        self.norms = defaultdict(list)
        self.layers = []

    def watch(self, name, layer):
        self.layers.append(name)

        def record(module, grad_input, grad_output):
            self.norms[name].append(grad_output[0].norm().item())

        layer.register_full_backward_hook(record)

    def summary(self):
        for name in self.layers:
            values = self.norms.pop(name, [])
            text = f"{sum(values) / len(values):.5f}" if values else "no data"
            print(f"  {name:<8} {text}")


def make_reviews(count, length=18, vocab=200):
    labels = torch.randint(0, 2, (count,))
    tokens = torch.randint(0, vocab, (count, length))
    praise = torch.rand(count, length) < 0.25
    tokens = torch.where(praise & (labels[:, None] == 1), tokens % 20, tokens)
    return tokens, labels


def train_epoch(model, optimizer, tokens, labels):
    losses = []
    for rows in torch.randperm(len(tokens)).split(60):
        loss = F.cross_entropy(model(tokens[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


@torch.no_grad()
def accuracy(model, tokens, labels):
    return (model(tokens).argmax(1) == labels).float().mean().item()


def main():
    torch.manual_seed(2)
    torch.set_num_threads(1)
    tokens, labels = make_reviews(900)
    test_tokens, test_labels = make_reviews(300)
    model = ReviewLSTM()
    monitor = GradientMonitor()
    monitor.watch("project", model.project)
    monitor.watch("lstm", model.lstm)
    monitor.watch("dense", model.dense)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for epoch in range(3):
        loss = train_epoch(model, optimizer, tokens, labels)
        print(f"epoch {epoch}: loss {loss:.4f}, test accuracy {accuracy(model, test_tokens, test_labels):.3f}")
        print("  mean norm of the gradient at the output of")
        monitor.summary()


if __name__ == "__main__":
    main()
