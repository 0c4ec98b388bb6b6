"""Variational autoencoder for 8x8 bar patterns."""
import json
import os

import torch
from torch import nn

torch.set_num_threads(1)


def fault():
    f = json.loads(os.environ.get("FAULT", "{}"))
    return f.get("kind", ""), f.get("step", 0), f.get("layer", ""), f.get("seed", 0)


KIND, STEP, LAYER, SEED = fault()
torch.manual_seed(SEED)


class Dense(nn.Module):
    """Linear layer with ReLU."""

    def __init__(self, i, o):
        super().__init__()
        self.fc = nn.Linear(i, o)
        self.bug = ""

    def forward(self, x):
        z = self.fc(x)
        if self.bug == "fwd_log":
            z = torch.log10(z - z.mean())
        h = z.clamp(min=0)
        if self.bug == "bwd_sqrt":
            cosine = h / h.detach().clamp(min=1e-6)
            h = h + torch.acos(cosine)  # exactly 1 in places
        return h


class VAE(nn.Module):
    def __init__(self, latent=4):
        super().__init__()
        self.enc = nn.Sequential(Dense(64, 96), Dense(96, 64), Dense(64, 48))
        self.mu, self.logvar = nn.Linear(48, latent), nn.Linear(48, latent)
        self.dec = nn.Sequential(Dense(latent, 48), Dense(48, 96))
        self.pixels = nn.Linear(96, 64)
        if KIND == "unused_head":
            self.classifier = nn.Linear(latent, 10)

    def forward(self, batch):
        h = self.enc(batch)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.pixels(self.dec(z)), mu, logvar


def patterns(n):
    col, row = torch.randint(0, 8, (n,)), torch.randint(0, 8, (n,))
    img = torch.zeros(n, 8, 8)
    img[torch.arange(n), :, col] = 1.0
    img[torch.arange(n), row, :] = 1.0
    return img.flatten(1) + 0.05 * torch.randn(n, 64)


def elbo(recon, x, mu, logvar):
    rec = (recon - x).pow(2).sum(1).mean()
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    return rec + 0.05 * kl


def main():
    model = VAE()
    lr, decay = 3e-3, 0.0
    if KIND == "lr_high":
        lr = 0.3
    if KIND == "wd_huge":
        decay = 30.0
    if KIND == "dead_bias":
        torch.nn.init.constant_(model.get_submodule(LAYER).fc.bias, -1e3)
    adam = torch.optim.AdamW if KIND == "wd_huge" else torch.optim.Adam
    opt = adam(model.parameters(), lr=lr, weight_decay=decay)
    state = {}
    for it in range(180):
        x = patterns(64)
        if it == STEP:
            if KIND in ("fwd_log", "bwd_sqrt"):
                model.get_submodule(LAYER).bug = KIND
            elif KIND == "data_inf":
                x[10, 3] = 1.0 / torch.zeros(())
            elif KIND == "batch_scale":
                x = x * 40
            elif KIND == "state_neg":
                opt.state[model.get_parameter(LAYER)]["exp_avg_sq"].sub_(1.0)
            elif KIND == "grad_hook":
                state["handle"] = model.get_submodule(LAYER).fc.weight.register_hook(lambda g: g.mul(5e4))
        elif it == STEP + 1 and KIND == "grad_hook":
            state["handle"].remove()
        if KIND == "lr_spike":
            for g in opt.param_groups:
                g["lr"] = lr * (120 if it == STEP else 1)
        loss = elbo(*pack(model(x), x))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if it % 45 == 0 or it == 179:
            print(f"iteration {it}: {loss.item():.3f}")


def pack(out, x):
    return out[0], x, out[1], out[2]


if __name__ == "__main__":
    main()
