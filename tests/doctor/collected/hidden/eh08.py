"""Sparse autoencoder on the hidden states of a frozen network, with a spliced-in evaluation."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Host(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.inp = nn.Linear(10, dim)
        self.mid = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, 4)

    def forward(self, x):
        return self.out(torch.relu(self.mid(torch.relu(self.inp(x)))))


class SAE(nn.Module):
    def __init__(self, dim, features):
        super().__init__()
        self.enc = nn.Linear(dim, features)
        self.dec = nn.Linear(features, dim)

    def forward(self, h):
        f = torch.relu(self.enc(h))
        return self.dec(f), f


@torch.no_grad()
def harvest(model, layer, x):
    chunks = []
    handle = layer.register_forward_hook(lambda m, a, o: chunks.append(o.clone()))
    for batch in x.split(64):
        model(batch)
    handle.remove()
    return torch.cat(chunks)


def spliced_loss(model, layer, sae, x, y):
    def splice(module, args, output):
        recon, _ = sae(output)
        return recon.to(output.dtype)
    handle = layer.register_forward_hook(splice)
    with torch.no_grad():
        loss = F.cross_entropy(model(x), y).item()
    handle.remove()
    return loss


def main():
    torch.manual_seed(0)
    x = torch.randn(512, 10)
    y = (x[:, :4] + 0.5 * x[:, 4:8]).argmax(-1)
    host = Host()
    opt = torch.optim.Adam(host.parameters(), lr=5e-3)
    for _ in range(80):
        loss = F.cross_entropy(host(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    host.requires_grad_(False)
    acts = harvest(host, host.mid, x)
    print(f"host loss {loss.item():.4f}, activations {tuple(acts.shape)} need a gradient: {acts.requires_grad}")
    sae = SAE(24, 64)
    opt = torch.optim.Adam(sae.parameters(), lr=5e-3)
    for step in range(151):
        recon, feats = sae(acts)
        loss = F.mse_loss(recon, acts) + 1e-3 * feats.abs().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            print(f"step {step:3d} sae loss {loss.item():.4f} active features {(feats > 0).float().sum(1).mean().item():.1f}")
    print(f"cross entropy with the reconstruction {spliced_loss(host, host.mid, sae, x, y):.4f}")
    print(f"cross entropy without it {F.cross_entropy(host(x), y).item():.4f}")


if __name__ == "__main__":
    main()
