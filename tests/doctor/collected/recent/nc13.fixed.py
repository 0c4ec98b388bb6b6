"""Simulated low-bandwidth training: only the largest gradient entries are transmitted.

After the gradient of a parameter has been accumulated, all but the top entries are kept
back in a residual that is added again in the next step (error feedback).
"""
import torch
from torch import nn

torch.set_num_threads(1)
KEEP = 0.05


class SequenceTagger(nn.Module):
    def __init__(self, vocab=24, dim=24, tags=5):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, tags)

    def forward(self, ids):
        return self.out(self.rnn(self.embed(ids))[0])


class TopKTransmission:
    def __init__(self, model, keep):
        self.keep = keep
        self.residual = {}
        self.accumulators = []
        for name, p in model.named_parameters():
            accumulator = p.expand_as(p).grad_fn.next_functions[0][0]
            accumulator.register_hook(self.make_hook(name, p))
            self.accumulators.append(accumulator)

    def make_hook(self, name, p):
        def hook(grad_inputs, grad_outputs):
            self.compress(name, p)
        return hook

    @torch.no_grad()
    def compress(self, name, p):
        total = p.grad + self.residual.get(name, 0.0)
        k = max(1, int(self.keep * total.numel()))
        limit = total.abs().flatten().topk(k).values[-1]
        sent = torch.where(total.abs() >= limit, total, torch.zeros_like(total))
        self.residual[name] = total - sent
        p.grad.copy_(sent)


def tagged(n=320, length=12):
    g = torch.Generator().manual_seed(13)
    ids = torch.randint(0, 24, (n, length), generator=g)
    prev = torch.cat([torch.zeros(n, 1, dtype=torch.long), ids[:, :-1]], 1)
    return ids, (ids + 2 * prev) % 5


def main():
    torch.manual_seed(0)
    ids, tags = tagged()
    model = SequenceTagger()
    link = TopKTransmission(model, KEEP)
    opt = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    entries = sum(p.numel() for p in model.parameters())
    sent, loss = [], None
    for step in range(40):
        idx = torch.randint(0, len(ids), (32,))
        loss = nn.functional.cross_entropy(model(ids[idx]).flatten(0, 1), tags[idx].flatten())
        opt.zero_grad()
        loss.backward()
        sent.append(sum(int((p.grad != 0).sum()) for p in model.parameters()))
        opt.step()
    held = sum(float(r.norm()) for r in link.residual.values())
    print(f"loss after 40 steps {loss.item():.3f}   norm of the residuals {held:.3f}")
    print(f"transmitted share of gradient entries: {sum(sent) / len(sent) / entries:.2f}")


if __name__ == "__main__":
    main()
