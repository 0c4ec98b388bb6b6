"""Conditional diffusion: condition dropout in training, steering of one layer while sampling, both by hooks."""
import torch
from torch import nn

torch.manual_seed(115)
T, NULL = 20, 2


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time, self.label = nn.Embedding(T, 8), nn.Embedding(3, 8)
        self.mid = nn.Sequential(nn.Linear(18, 48), nn.SiLU())
        self.out = nn.Linear(48, 2)

    def forward(self, x, t, *, cond):
        return self.out(self.mid(torch.cat([x, self.time(t), self.label(cond)], dim=1)))


counts = {"dropped": 0, "steered": 0}


def drop_condition(module, args, kwargs):
    if not module.training:
        return None                                 # sampling keeps its condition
    cond = kwargs["cond"]
    drop = torch.rand(len(cond)) < 0.15
    counts["dropped"] += int(drop.sum())
    return args, {**kwargs, "cond": cond.masked_fill(drop, NULL)}


def steer(direction):
    def hook(module, args, output):
        counts["steered"] += 1
        return output + direction
    return hook


model = Denoiser()
model.register_forward_pre_hook(drop_condition, with_kwargs=True)
abar = torch.cumprod(1 - torch.linspace(1e-3, 0.25, T), dim=0)
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
centres = torch.tensor([[2.0, 0.0], [-2.0, 0.0]])

for step in range(150):
    c = torch.randint(0, 2, (64,))
    x0, t, eps = centres[c] + 0.1 * torch.randn(64, 2), torch.randint(0, T, (64,)), torch.randn(64, 2)
    a = abar[t].unsqueeze(1)
    loss = (model(a.sqrt() * x0 + (1 - a).sqrt() * eps, t, cond=c) - eps).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.3f}, dropped labels {100 * counts['dropped'] / (150 * 64):.0f}%")


@torch.no_grad()
def sample(label, n=100):
    model.eval()
    x, cond = torch.randn(n, 2), torch.full((n,), label)
    for t in reversed(range(T)):
        eps = model(x, torch.full((n,), t), cond=cond)
        x0 = (x - (1 - abar[t]).sqrt() * eps) / abar[t].sqrt()
        x = x0 if t == 0 else abar[t - 1].sqrt() * x0 + (1 - abar[t - 1]).sqrt() * eps
    return x.mean(dim=0)


plain = sample(0)
with model.mid.register_forward_hook(steer(0.05 * model.out.weight[1].detach().sign())):
    steered = sample(0)
again = sample(0)
print("sample means:", [[round(v, 1) for v in s.tolist()] for s in (plain, steered, again)])
print(f"steered calls {counts['steered']}, hooks left on the layer {len(model.mid._forward_hooks)}")
