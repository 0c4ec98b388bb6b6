"""GAN with an exponential moving average of the generator."""
import copy
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

torch.set_num_threads(1)
torch.manual_seed(0)
DECAY, N_CRITIC, ITERS = 0.99, 3, 60

G = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
D = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))
ema = copy.deepcopy(G).requires_grad_(False)
initial = copy.deepcopy(G).requires_grad_(False)
n_updates = 0


def update_ema(optimizer, args, kwargs):
    global n_updates
    n_updates += 1
    with torch.no_grad():
        for e, p in zip(ema.parameters(), G.parameters()):
            e.lerp_(p, 1 - DECAY)


register_optimizer_step_post_hook(update_ema)

opt_g = torch.optim.Adam(G.parameters(), lr=2e-3)
opt_d = torch.optim.Adam(D.parameters(), lr=2e-3)
bce = nn.BCEWithLogitsLoss()
one, zero = torch.ones(64, 1), torch.zeros(64, 1)
for it in range(ITERS):
    for _ in range(N_CRITIC):
        real = torch.randn(64, 2) * 0.3 + 2.0
        fake = G(torch.randn(64, 4)).detach()
        d_loss = bce(D(real), one) + bce(D(fake), zero)
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()
    g_loss = bce(D(G(torch.randn(64, 4))), one)
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()


def dist(a, b):
    return sum((p - q).pow(2).sum() for p, q in zip(a.parameters(), b.parameters())).sqrt().item()


print(f"iterations {ITERS}, EMA updates {n_updates}")
print(f"weight of the initial generator in the EMA: {DECAY ** n_updates:.3f}, planned {DECAY ** ITERS:.3f}")
print(f"distance EMA - current {dist(ema, G):.3f}, EMA - initial {dist(ema, initial):.3f}")
