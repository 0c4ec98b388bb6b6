"""Language model with tied embeddings; all weight matrices get half of their gradient in the first phase."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class TiedLM(nn.Module):
    def __init__(self, vocab=40, dim=24):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.rnn_in = nn.Linear(dim, dim)
        self.rnn_rec = nn.Linear(dim, dim, bias=False)
        self.head = nn.Linear(dim, vocab, bias=False)
        self.head.weight = self.tok.weight

    def forward(self, ids):
        h = torch.zeros(ids.shape[0], self.tok.embedding_dim)
        logits = []
        for t in range(ids.shape[1]):
            h = torch.tanh(self.rnn_in(self.tok(ids[:, t])) + self.rnn_rec(h))
            logits.append(self.head(h))
        return torch.stack(logits, 1)


def damp(model, factor):
    """Multiply the gradient of every weight matrix by factor."""
    handles = []
    for name, weight in model.named_parameters():  # tied parameters come only once
        if name.endswith("weight"):
            handles.append(weight.register_hook(lambda g: g * factor))
    return handles


def grads_of(model, ids):
    model.zero_grad()
    F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
    return {n: p.grad.clone() for n, p in model.named_parameters()}


def main():
    torch.manual_seed(0)
    start = torch.randint(0, 40, (48, 1))
    ids = (start + 3 * torch.arange(10)) % 40
    model = TiedLM()
    plain = grads_of(model, ids)
    handles = damp(model, 0.5)
    damped = grads_of(model, ids)
    print("effect of the damping on the gradients")
    for name in plain:
        print(f"  {name:14s} factor {(damped[name].norm() / plain[name].norm()).item():.3f}")
    opt = torch.optim.SGD(model.parameters(), lr=1.0)
    for phase, steps in (("damped", 30), ("full", 30)):
        if phase == "full":
            for h in handles:
                h.remove()
        for _ in range(steps):
            loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"end of phase {phase}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
