"""Language model with a memory-saving chunked loss; a monitor watches the entropy of the predictions."""
import torch
import torch.nn.functional as F
from torch import nn


def chunked_cross_entropy(hidden, projection, targets, chunk=16):
    """Never holds the logits of the whole batch in memory."""
    total = hidden.new_zeros(())
    for h, t in zip(hidden.flatten(0, 1).split(chunk), targets.flatten().split(chunk)):
        logits = F.linear(h, projection.weight, projection.bias)
        total = total + F.cross_entropy(logits, t, reduction="sum")
    return total / targets.numel()


class GruLM(nn.Module):
    def __init__(self, vocab=40, dim=24):
        super().__init__()
        self.parts = nn.ModuleDict({
            "embed": nn.Embedding(vocab, dim),
            "rnn": nn.GRU(dim, dim, batch_first=True),
            "lm_head": nn.Linear(dim, vocab),
        })

    def forward(self, ids):
        hidden, _ = self.parts["rnn"](self.parts["embed"](ids))
        return hidden

    def loss(self, ids):
        return chunked_cross_entropy(self(ids[:, :-1]), self.parts["lm_head"], ids[:, 1:])


class EntropyMonitor:
    """Context manager that records the mean entropy of the predicted distributions."""

    def __init__(self, head):
        self.head, self.values = head, []

    def __enter__(self):
        self._handle = self.head.register_forward_hook(self._record)
        return self

    def __exit__(self, *exc):
        self._handle.remove()

    def _record(self, module, args, logits):
        log_probs = logits.detach().log_softmax(-1)
        self.values.append(-(log_probs.exp() * log_probs).sum(-1).mean())


def main():
    torch.manual_seed(0)
    model = GruLM()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    corpus = torch.randint(0, 40, (5, 8, 13))
    with EntropyMonitor(model.parts["lm_head"]) as monitor:
        for step, batch in enumerate(corpus):
            optimizer.zero_grad()
            loss = model.loss(batch)
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.3f} recorded entropies {len(monitor.values)}")


if __name__ == "__main__":
    main()
