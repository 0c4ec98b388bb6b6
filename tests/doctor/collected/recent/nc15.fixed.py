"""Ensemble of small vision models trained in parallel threads with packed activations.

Float activations that autograd keeps for the backward pass are stored as bfloat16, and the
amount of memory that this saves per step is reported.
"""
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

torch.set_num_threads(1)
MEMBERS, STEPS = 3, 12


class SmallNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.SiLU(), nn.MaxPool2d(2),
            nn.Conv2d(width, width, 3, padding=1), nn.SiLU(), nn.AdaptiveAvgPool2d(2))
        self.fc = nn.Linear(4 * width, 4)

    def forward(self, x):
        return self.fc(self.features(x).flatten(1))


class ActivationPacker:
    def __init__(self):
        self.lock = threading.Lock()
        self.full_bytes, self.packed_bytes = 0, 0

    def pack(self, t):
        if isinstance(t, nn.Parameter) or t.dtype != torch.float32:
            return t
        small = t.to(torch.bfloat16)
        with self.lock:
            self.full_bytes += t.numel() * t.element_size()
            self.packed_bytes += small.numel() * small.element_size()
        return (small,)

    def unpack(self, stored):
        return stored[0].float() if isinstance(stored, tuple) else stored

    def saved_share(self):
        return 1 - self.packed_bytes / self.full_bytes if self.full_bytes else 0.0


def images(n=240):
    g = torch.Generator().manual_seed(21)
    y = torch.randint(0, 4, (n,), generator=g)
    x = 0.4 * torch.randn(n, 1, 12, 12, generator=g)
    for k in range(4):
        r, c = divmod(k, 2)
        x[y == k, :, 6 * r:6 * r + 6, 6 * c:6 * c + 6] += 0.8
    return x, y


def train_member(job):
    model, x, y, seed, packer = job
    gen = torch.Generator().manual_seed(seed)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(STEPS):
        idx = torch.randint(0, len(x), (32,), generator=gen)
        with saved_tensors_hooks(packer.pack, packer.unpack):
            loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    x, y = images()
    members = [SmallNet(8) for _ in range(MEMBERS)]
    packer = ActivationPacker()
    jobs = [(m, x, y, 100 + i, packer) for i, m in enumerate(members)]
    with ThreadPoolExecutor(MEMBERS) as pool:
        losses = list(pool.map(train_member, jobs))
    with torch.no_grad():
        votes = sum(m(x).softmax(1) for m in members)
    print("final losses", " ".join(f"{v:.2f}" for v in losses))
    print(f"ensemble accuracy {(votes.argmax(1) == y).float().mean().item():.2f}")
    per_step = packer.full_bytes / (MEMBERS * STEPS * 1024)
    print(f"packed activations per step: {per_step:.1f} KiB, saved share {packer.saved_share():.2f}")


if __name__ == "__main__":
    main()
