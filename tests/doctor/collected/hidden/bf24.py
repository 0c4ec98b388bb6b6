"""Conditional diffusion on 2-D points; the condition is dropped now and then so that guidance works at sampling time."""
import torch
from torch import nn

torch.manual_seed(33)
T, P_DROP, NULL = 30, 0.2, 4        # class 4 stands for "no condition"


class Denoiser(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.time = nn.Embedding(T, 8)
        self.label = nn.Embedding(5, 8)
        self.net = nn.Sequential(nn.Linear(18, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2))

    def forward(self, x, t, cond=None):
        cond = torch.full_like(t, NULL) if cond is None else cond
        return self.net(torch.cat([x, self.time(t), self.label(cond)], dim=1))


class ConditionDropout:
    """Before each training forward, replaces a random part of the labels by the null label."""

    def __init__(self, model, p):
        self.p = p
        self.seen = self.dropped = 0
        model.register_forward_pre_hook(self.hook)

    def hook(self, module, args):
        if not module.training or len(args) < 3:       # sampling, or an unconditional call
            return None
        x, t, cond = args
        drop = torch.rand(len(cond)) < self.p
        self.dropped += int(drop.sum())
        return x, t, torch.where(drop, torch.full_like(cond, NULL), cond)


centres = torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 2.0], [0.0, -2.0]])
alpha_bar = torch.cumprod(1 - torch.linspace(1e-3, 0.2, T), dim=0)
model = Denoiser()
dropout = ConditionDropout(model, P_DROP)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
null_before = model.label.weight[NULL].detach().clone()

model.train()
for step in range(150):
    c = torch.randint(0, 4, (64,))
    x0 = centres[c] + 0.1 * torch.randn(64, 2)
    t = torch.randint(0, T, (64,))
    noise = torch.randn_like(x0)
    ab = alpha_bar[t].unsqueeze(1)
    xt = ab.sqrt() * x0 + (1 - ab).sqrt() * noise
    pred = model(xt, t, cond=c)
    loss = (pred - noise).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dropout.seen += len(c)
    if step % 50 == 49:
        print(f"step {step + 1}: loss {loss.item():.3f}")

print(f"labels dropped: {100 * dropout.dropped / dropout.seen:.1f}% of {dropout.seen}")
moved = (model.label.weight[NULL].detach() - null_before).norm().item()
print(f"null embedding moved by {moved:.4f}")
