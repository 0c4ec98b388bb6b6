"""A Wasserstein GAN with gradient penalty (create_graph) and three critic steps for each generator step."""

import hashlib

import torch
from torch import nn


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


torch.set_num_threads(1)
torch.manual_seed(9)


def mlp(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, outputs))


def real(n):
    x = torch.randn(n, 2)
    x[:, 1] = 0.5 * x[:, 0] ** 2 + 0.2 * x[:, 1] + 1
    return x


gen, critic = mlp(4, 2), mlp(2, 1)
opt_g = torch.optim.RMSprop(gen.parameters(), lr=1e-3)
opt_c = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.0, 0.9))


def gap():
    with torch.no_grad():
        a, b = gen(torch.randn(2000, 4)), real(2000)
        return ((a.mean(0) - b.mean(0)).abs().sum() + (a.std(0) - b.std(0)).abs().sum()).item()


before = gap()
for _step in range(500):
    for _ in range(3):
        x, fake = real(48), gen(torch.randn(48, 4)).detach()
        mix = torch.rand(48, 1)
        inter = (mix * x + (1 - mix) * fake).requires_grad_(True)
        grad = torch.autograd.grad(critic(inter).sum(), inter, create_graph=True)[0]
        penalty = ((grad.norm(2, dim=1) - 1) ** 2).mean()
        loss_c = critic(fake).mean() - critic(x).mean() + 10 * penalty
        opt_c.zero_grad()
        loss_c.backward()
        opt_c.step()
    loss_g = -critic(gen(torch.randn(48, 4))).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
after = gap()
print(f"gap {before:.3f} -> {after:.3f}")
assert after < 0.4 * before
print("digest", digest(gen, critic))
