"""How far back does the gradient reach? Per-step gradient norms of a hand-written GRU loop."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(55)
torch.set_num_threads(1)


class RecallGRU(nn.Module):
    """Reads a sequence and has to name its first symbol at the end."""

    def __init__(self, symbols=6, hidden=32, hidden_clip=None):
        super().__init__()
        self.embedding = nn.Embedding(symbols, 8)
        self.cell = nn.GRUCell(8, hidden)
        self.out = nn.Linear(hidden, symbols)
        self.hidden_clip = hidden_clip
        self.watcher = None

    def forward(self, tokens):
        hidden = torch.zeros(len(tokens), self.cell.hidden_size)
        for t, token in enumerate(tokens.unbind(dim=1)):
            hidden = self.cell(self.embedding(token), hidden)
            if hidden.requires_grad:
                if self.hidden_clip is not None:
                    hidden.register_hook(self.clip)
                if self.watcher is not None:
                    hidden.register_hook(lambda grad, t=t: self.watcher(t, grad))
        return self.out(hidden)

    def clip(self, grad):
        return grad.clamp(-self.hidden_clip, self.hidden_clip)


class FlowProbe:
    def __init__(self, model):
        self.model = model
        self.norms = {}

    def record(self, t, grad):
        self.norms[t] = grad.norm().item()

    def __enter__(self):
        self.model.watcher = self.record
        return self

    def __exit__(self, *exc):
        self.model.watcher = None


def make_batch(n=64, length=8, symbols=6):
    tokens = torch.randint(0, symbols, (n, length))
    return tokens, tokens[:, 0]


def probe_flow(model):
    tokens, labels = make_batch()
    with FlowProbe(model) as probe:
        F.cross_entropy(model(tokens), labels).backward()
    model.zero_grad()
    steps = sorted(probe.norms)
    print("  ".join(f"t{t}:{probe.norms[t]:.3f}" for t in steps))
    return probe.norms[steps[0]] / probe.norms[steps[-1]]


def main():
    model = RecallGRU(hidden_clip=0.05)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    print(f"before training: first/last gradient {probe_flow(model):.4f}")
    for step in range(150):
        tokens, labels = make_batch()
        loss = F.cross_entropy(model(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"training loss {loss.item():.4f}")
    print(f"after training: first/last gradient {probe_flow(model):.4f}")

    tokens, labels = make_batch(n=256)
    with torch.no_grad():
        accuracy = (model(tokens).argmax(dim=1) == labels).float().mean().item()
    print(f"recall accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
