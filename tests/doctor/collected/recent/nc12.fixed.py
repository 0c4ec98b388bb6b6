"""Training with periodic snapshots that are stored on a coarse grid to save disk space.

The snapshot is written through the normal state_dict(), in which weight matrices are
rounded to 4-bit steps per row. How often snapshots are taken is a matter of taste.
"""
import io

import torch
from torch import nn

torch.set_num_threads(1)


class Autoencoder(nn.Module):
    def __init__(self, d=24, code=6):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d, 40), nn.Tanh(), nn.Linear(40, code))
        self.dec = nn.Sequential(nn.Linear(code, 40), nn.Tanh(), nn.Linear(40, d))

    def forward(self, x):
        return self.dec(self.enc(x))


def coarse_grid(module, state, prefix, local_metadata):
    for key, value in state.items():
        if value.dim() == 2:
            step = value.abs().amax(1, keepdim=True) / 7
            state[key] = (value / step).round() * step


class Snapshots:
    def __init__(self, model, every):
        self.model, self.every = model, every
        self.files = []
        model.register_state_dict_post_hook(coarse_grid)

    def after_step(self, step):
        if self.every and step % self.every == 0:
            f = io.BytesIO()
            torch.save(self.model.state_dict(), f)
            self.files.append(f)


def signals(n=512, d=24):
    g = torch.Generator().manual_seed(7)
    t = torch.linspace(0, 1, d)
    amp = torch.randn(n, 3, generator=g)
    freq = torch.tensor([1.0, 2.0, 3.5])
    return (amp[:, :, None] * torch.sin(6.283 * freq[:, None] * t)).sum(1)


def run(every, steps=200):
    torch.manual_seed(0)
    x = signals()
    model = Autoencoder()
    snaps = Snapshots(model, every)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(1, steps + 1):
        idx = torch.randint(0, len(x), (64,))
        loss = nn.functional.mse_loss(model(x[idx]), x[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        snaps.after_step(step)
    with torch.no_grad():
        final = nn.functional.mse_loss(model(x), x).item()
    return final, len(snaps.files)


def main():
    results = {every: run(every) for every in (0, 50, 10)}
    for every, (loss, files) in results.items():
        label = f"every {every} steps" if every else "never"
        print(f"snapshots {label:<16} files {files:3d}   training loss {loss:.5f}")
    losses = [v[0] for v in results.values()]
    print(f"spread of the training loss: {max(losses) - min(losses):.5f}")


if __name__ == "__main__":
    main()
