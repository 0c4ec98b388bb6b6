"""Optimizer step fused into the backward pass, with gradient accumulation.

Each parameter's hook runs in every micro-batch, but it steps only in the last one; the
result is compared with ordinary training.
"""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(24)
torch.set_num_threads(1)

MICRO = 4


class AutoEncoder(nn.Module):
    def __init__(self, code=6):
        super().__init__()
        self.encode = nn.Sequential(nn.Flatten(), nn.Linear(100, 32), nn.Tanh(), nn.Linear(32, code))
        self.decode = nn.Sequential(nn.Linear(code, 32), nn.Tanh(), nn.Linear(32, 100))

    def forward(self, x):
        return self.decode(self.encode(x)).view_as(x)


class FusedAdam:
    def __init__(self, model, lr):
        self.armed = False
        self.steps = 0
        self.optimizers = {p: torch.optim.Adam([p], lr=lr) for p in model.parameters()}
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(self.step)

    def step(self, param):
        if not self.armed:
            return
        self.optimizers[param].step()
        self.optimizers[param].zero_grad()
        self.steps += 1


def make_images(n, seed):
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(10.0), torch.arange(10.0), indexing="ij")
    cx, cy = torch.rand(2, n, 1, 1, generator=g) * 10
    return 2 * torch.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / 10.0)


def micro_batches(images, step):
    idx = torch.arange(step * 64, step * 64 + 64) % len(images)
    return images[idx].chunk(MICRO)


def main():
    images = make_images(512, seed=1)
    fused_model = AutoEncoder()
    plain_model = copy.deepcopy(fused_model)
    fused = FusedAdam(fused_model, lr=3e-3)
    plain = torch.optim.Adam(plain_model.parameters(), lr=3e-3)

    for step in range(60):
        for i, batch in enumerate(micro_batches(images, step)):
            fused.armed = i == MICRO - 1
            loss = F.mse_loss(fused_model(batch), batch) / MICRO
            loss.backward()
        for batch in micro_batches(images, step):
            (F.mse_loss(plain_model(batch), batch) / MICRO).backward()
        plain.step()
        plain.zero_grad()
        if step % 20 == 0:
            print(f"step {step:2d} loss {loss.item() * MICRO:.4f}")

    count = len(list(fused_model.parameters()))
    gap = max((a - b).abs().max().item() for a, b in zip(fused_model.parameters(), plain_model.parameters()))
    print(f"updates per parameter: {fused.steps // count}")
    print(f"largest difference from ordinary training {gap:.1e}")
    with torch.no_grad():
        print(f"reconstruction error {F.mse_loss(fused_model(images), images).item():.4f}")


if __name__ == "__main__":
    main()
