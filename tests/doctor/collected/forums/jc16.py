"""Character-level GRU language model; the global gradient norm is monitored
during training to decide on a clipping value."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(53)

TEXT = ("the quick brown fox jumps over the lazy dog while the cat sleeps "
        "under the old oak tree and the birds sing in the morning light ") * 8
VOCAB = sorted(set(TEXT))
INDEX = {ch: i for i, ch in enumerate(VOCAB)}


class CharGRU(nn.Module):
    def __init__(self, vocab, hidden=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, 16)
        self.gru = nn.GRU(16, hidden, batch_first=True)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, tokens):
        states, _ = self.gru(self.embed(tokens))
        return self.out(states)


class NormMonitor:
    def __init__(self, model):
        self.model = model
        self.history = []

    def measure(self, *_):
        grads = [p.grad for p in self.model.parameters() if p.grad is not None]
        squared = sum((g.pow(2).sum().item() for g in grads), 0.0)
        self.history.append(squared ** 0.5)

    def quantile(self, q):
        return torch.tensor(self.history).quantile(q).item()


def batches(length=24, batch_size=8):
    data = torch.tensor([INDEX[ch] for ch in TEXT])
    windows = data.unfold(0, length + 1, length)
    order = torch.randperm(len(windows))
    for chunk in order.split(batch_size):
        rows = windows[chunk]
        yield rows[:, :-1], rows[:, 1:]


def generate(model, start="the ", count=20):
    tokens = torch.tensor([[INDEX[ch] for ch in start]])
    with torch.no_grad():
        for _ in range(count):
            nxt = model(tokens)[:, -1].argmax(dim=-1, keepdim=True)
            tokens = torch.cat([tokens, nxt], dim=1)
    return "".join(VOCAB[i] for i in tokens[0].tolist())


def main():
    model = CharGRU(len(VOCAB))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    monitor = NormMonitor(model)
    handle = model.register_full_backward_hook(monitor.measure)

    for epoch in range(6):
        total, seen = 0.0, 0
        for inputs, targets in batches():
            logits = model(inputs)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(inputs)
            seen += len(inputs)
        print(f"epoch {epoch + 1}: loss {total / seen:.4f}")
    handle.remove()

    print(f"sample: {generate(model)!r}")
    print(f"measurements: {len(monitor.history)}")
    print(f"gradient norm: median {monitor.quantile(0.5):.4f}, 95% {monitor.quantile(0.95):.4f}")


if __name__ == "__main__":
    main()
