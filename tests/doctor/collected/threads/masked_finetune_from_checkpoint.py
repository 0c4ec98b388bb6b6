"""Sparse fine-tuning: only unmasked weights may change. Weights are loaded without copying."""
import io
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


def build():
    return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))


class SparseTuner:
    """Keeps a random 80 % of every weight matrix fixed with gradient masks."""

    def __init__(self, model, keep=0.2):
        self.masks = {}
        for name, p in model.named_parameters():
            if p.dim() == 2:
                mask = (torch.rand_like(p) < keep).float()
                self.masks[name] = mask
                p.register_hook(lambda g, mask=mask: g * mask)


checkpoint = io.BytesIO()
torch.save(build().state_dict(), checkpoint)
checkpoint.seek(0)

model = build()
tuner = SparseTuner(model)
state = torch.load(checkpoint, weights_only=True)
model.load_state_dict(state, assign=True)

start = {n: p.detach().clone() for n, p in model.named_parameters()}
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(256, 10)
y = (x[:, 0] > x[:, 1]).long()
for step in range(50):
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"final loss {loss.item():.4f}")
for n, mask in tuner.masks.items():
    delta = (model.get_parameter(n).detach() - start[n]) != 0
    print(f"{n}: allowed to change {mask.mean():.2f}, changed {delta.float().mean():.2f}, "
          f"changed although fixed {int((delta & (mask == 0)).sum())}")
