"""Log per-layer gradient norms while accumulating gradients over micro-batches."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(12)
torch.set_num_threads(1)


class Tagger(nn.Module):
    def __init__(self, vocab=40, dim=16, hidden=20, tags=5):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.lstm = nn.LSTM(dim, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, tags)

    def forward(self, tokens):
        states, _ = self.lstm(self.embedding(tokens))
        return self.out(states)


class GradNormLogger:
    """Keeps the latest norm of every parameter's accumulated gradient."""

    def __init__(self, model):
        self.norms = {}
        self.handles = []
        for name, param in model.named_parameters():
            self.handles.append(
                param.register_post_accumulate_grad_hook(self.make_hook(name, param)))

    def make_hook(self, name, param):
        def log_norm(_):
            if param.grad is not None:
                self.norms[name] = param.grad.norm().item()
        return log_norm

    def total(self):
        return sum(norm ** 2 for norm in self.norms.values()) ** 0.5

    def close(self):
        for handle in self.handles:
            handle.remove()


def make_sentences(n=160, length=12):
    tokens = torch.randint(0, 40, (n, length))
    tags = (tokens + tokens.roll(1, dims=1)) % 5
    return tokens, tags


def main():
    tokens, tags = make_sentences()
    model = Tagger()
    logger = GradNormLogger(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    accumulate = 4

    ratios = []
    for epoch in range(4):
        for batch in torch.randperm(len(tokens)).split(32):
            optimizer.zero_grad()
            batch_loss = 0.0
            for micro in batch.split(len(batch) // accumulate):
                logits = model(tokens[micro])
                loss = F.cross_entropy(logits.flatten(0, 1), tags[micro].flatten()) / accumulate
                loss.backward()
                batch_loss += loss.item()
            logged = logger.total()
            true_norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
            ratios.append(logged / true_norm)
            optimizer.step()
        print(f"epoch {epoch}: loss {batch_loss:.4f}  logged norm {logged:.4f}")

    logger.close()
    widest = max(logger.norms, key=logger.norms.get)
    print(f"largest logged gradient: {widest}")
    print(f"logged norm / norm seen by clipping: {sum(ratios) / len(ratios):.2f}")


if __name__ == "__main__":
    main()
