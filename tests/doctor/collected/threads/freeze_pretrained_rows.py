"""Extend a pretrained vocabulary and train only the new rows."""
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
OLD, NEW, DIM = 40, 10, 16


class Tagger(nn.Module):
    def __init__(self, pretrained):
        super().__init__()
        self.emb = nn.Embedding(OLD + NEW, DIM)
        with torch.no_grad():
            self.emb.weight[:OLD] = pretrained
        self.head = nn.Linear(DIM, 4)

    def forward(self, ids):
        return self.head(self.emb(ids))


pretrained = torch.randn(OLD, DIM)
model = Tagger(pretrained)
row_mask = torch.zeros(OLD + NEW, 1)
row_mask[OLD:] = 1.0
model.emb.weight.register_hook(lambda g: g * row_mask)

opt = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.05)
for step in range(200):
    ids = torch.randint(0, OLD + NEW, (8, 12))
    target = ids % 4
    loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), target.flatten())
    opt.zero_grad()
    loss.backward()
    if step % 50 == 0:
        g = model.emb.weight.grad
        print(f"step {step:3d} loss {loss.item():.3f} grad old rows {g[:OLD].norm():.4f} new rows {g[OLD:].norm():.4f}")
    opt.step()

drift = (model.emb.weight.detach()[:OLD] - pretrained).abs().max()
ratio = model.emb.weight.detach()[:OLD].norm() / pretrained.norm()
print(f"max change of a pretrained entry: {drift:.4f}")
print(f"norm of pretrained rows, after / before: {ratio:.4f}")
