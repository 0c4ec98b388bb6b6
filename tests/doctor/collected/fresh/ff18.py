"""Teach a language model new tokens: only the rows of the new tokens may change in the embedding."""
import torch
from torch import nn

torch.manual_seed(19)
OLD, NEW = 50, 4


class LM(nn.Module):
    def __init__(self, vocab, dim=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, ids):
        return self.out(self.rnn(self.emb(ids))[0])


model = LM(OLD + NEW)
for p in (*model.rnn.parameters(), *model.out.parameters()):
    p.requires_grad_(False)


def only_new_rows(grad):
    grad = grad.clone()
    grad[:OLD] = 0
    return grad


# the old vocabulary gets no gradient and so keeps its vectors
model.emb.weight.register_hook(only_new_rows)

opt = torch.optim.AdamW([model.emb.weight], lr=1e-2, weight_decay=0.1)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=30)
start = model.emb.weight.detach().clone()
g = torch.Generator().manual_seed(190)
for step in range(30):
    ids = torch.randint(0, OLD, (8, 10), generator=g)
    ids[:, ::3] = torch.randint(OLD, OLD + NEW, ids[:, ::3].shape, generator=g)
    loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 10 == 0:
        print(f"step {step:2d} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.5f}")

moved = (model.emb.weight.detach() - start).norm(dim=1)
print(f"mean movement of new rows {moved[OLD:].mean().item():.5f}")
print(f"mean movement of old rows {moved[:OLD].mean().item():.5f}")
print("old rows changed:", int((moved[:OLD] > 0).sum()), "of", OLD)
