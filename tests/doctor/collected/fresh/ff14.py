"""Editing the bottleneck of a small denoiser while sampling with classifier-free guidance."""
import torch
from torch import nn

torch.manual_seed(14)


class Denoiser(nn.Module):
    def __init__(self, dim=16, classes=3):
        super().__init__()
        self.cond = nn.Embedding(classes + 1, dim)  # the last entry means "no condition"
        self.time = nn.Linear(1, dim)
        self.down = nn.Linear(8, dim)
        self.mid = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.up = nn.Linear(dim, 8)

    def forward(self, x, t, c):
        h = self.down(x) + self.time(t[:, None]) + self.cond(c)
        return self.up(torch.tanh(h + self.mid(h)))


model = Denoiser().eval()
SCALE, STEPS = 4.0, 10
direction = torch.nn.functional.normalize(torch.randn(16), dim=0)


def guided_noise(x, t, label):
    # one pass for both halves of the guidance
    both = torch.cat([x, x])
    c = torch.cat([torch.full((len(x),), 3), label])
    eps_uncond, eps_cond = model(both, torch.full((len(both),), t), c).chunk(2)
    return eps_uncond + SCALE * (eps_cond - eps_uncond)


@torch.no_grad()
def sample(label, noise):
    x = noise.clone()
    for i in reversed(range(STEPS)):
        x = x - 0.1 * guided_noise(x, i / STEPS, label)
    return x


def edit(strength):
    def hook(module, args, output):
        # the direction belongs to the concept: shift the conditional prediction by it
        return output + strength * direction
    return hook


noise = torch.randn(4, 8)
label = torch.tensor([0, 1, 2, 0])
plain = sample(label, noise)
result = {}
for strength in (0.5, 1.0):
    handle = model.mid.register_forward_hook(edit(strength))
    edited = sample(label, noise)
    handle.remove()
    result[strength] = (edited - plain).norm(dim=1).mean().item()
    print(f"strength {strength}: mean change of the samples {result[strength]:.4f}")

# how much of the edit passes through the guidance in a single step
handle = model.mid.register_forward_hook(edit(0.01))
with torch.no_grad():
    both_c = model.mid(torch.zeros(2, 16))
handle.remove()
with torch.no_grad():
    base = model.mid(torch.zeros(2, 16))
shift = (both_c - base).norm(dim=1)
print("shift of the unconditional and the conditional half:", [round(v, 4) for v in shift.tolist()])
