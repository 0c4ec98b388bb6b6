"""Skip-gram style training with a sparse embedding; no word may move too far in one step."""
import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, DIM, MAX_ROW_NORM, LR = 200, 16, 0.02, 1.0


class SkipGram(nn.Module):
    def __init__(self):
        super().__init__()
        self.center = nn.Embedding(VOCAB, DIM, sparse=True)
        self.context = nn.Embedding(VOCAB, DIM, sparse=True)
        nn.init.normal_(self.center.weight, std=0.3)
        nn.init.normal_(self.context.weight, std=0.3)

    def forward(self, c, pos, neg):
        v = self.center(c)
        good = (v * self.context(pos)).sum(-1)
        bad = (v * self.context(neg)).sum(-1)
        return -(F.logsigmoid(good) + F.logsigmoid(-bad)).mean()


def limit_rows(grad):
    """Scale the gradient of every word that is longer than MAX_ROW_NORM."""
    grad = grad.coalesce()
    idx, val = grad.indices(), grad.values()
    norms = val.norm(dim=1, keepdim=True)
    val = val * (MAX_ROW_NORM / norms.clamp(min=MAX_ROW_NORM))
    return torch.sparse_coo_tensor(idx, val, grad.size())


def corpus(n, gen):
    # Zipf: a few words are everywhere
    p = 1.0 / torch.arange(1, VOCAB + 1).float()
    ids = torch.multinomial(p / p.sum(), 2 * n, replacement=True, generator=gen)
    neg = torch.randint(0, VOCAB, (n,), generator=gen)
    return ids[:n], (ids[:n] + ids[n:]) % VOCAB, neg


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(11)
    model = SkipGram()
    model.center.weight.register_hook(limit_rows)
    model.context.weight.register_hook(limit_rows)
    opt = torch.optim.SGD(model.parameters(), lr=LR)
    farthest = torch.zeros(VOCAB)
    for step in range(40):
        c, pos, neg = corpus(256, gen)
        before = model.center.weight.detach().clone()
        loss = model(c, pos, neg)
        opt.zero_grad()
        loss.backward()
        opt.step()
        moved = (model.center.weight.detach() - before).norm(dim=1)
        farthest = torch.maximum(farthest, moved)
        if step % 10 == 0:
            print(f"step {step:2d} loss {loss.item():.4f}")
    limit = LR * MAX_ROW_NORM
    print(f"largest step of a word {farthest.max().item():.4f} (limit {limit:.4f})")
    print("words beyond the limit:", int((farthest > limit * 1.001).sum()))


if __name__ == "__main__":
    main()
