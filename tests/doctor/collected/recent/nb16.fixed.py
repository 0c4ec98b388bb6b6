"""Auto-encoder training with AutoClip: clip at a percentile of past gradient norms.

A multi-gradient hook records the global gradient norm of every backward pass; the clip
value is the CLIP_PERCENTILE of the norms seen so far.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd.graph import register_multi_grad_hook

torch.manual_seed(16)
torch.set_num_threads(1)

CLIP_PERCENTILE = 0.5


class AutoEncoder(nn.Module):
    def __init__(self, size=144, hidden=48, code=6):
        super().__init__()
        self.encode1 = nn.Linear(size, hidden, bias=False)
        self.encode2 = nn.Linear(hidden, code)
        self.decode1 = nn.Linear(code, hidden)
        self.decode2 = nn.Linear(hidden, size)

    def forward(self, x):
        code = self.encode2(torch.tanh(self.encode1(x.flatten(1))))
        return self.decode2(torch.tanh(self.decode1(code))).view_as(x)


class NormRecorder:
    def __init__(self, model):
        self.params = [p for p in model.parameters() if p.requires_grad]
        self.norms = []
        self.handle = register_multi_grad_hook(self.params, self.record)

    def record(self, grads):
        present = [g for g in grads if g is not None]
        self.norms.append(torch.stack([g.norm() for g in present]).norm().item())

    def clip_value(self):
        return torch.tensor(self.norms).quantile(CLIP_PERCENTILE).item()


def make_images(n, seed):
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    cx = torch.rand(n, 1, 1, generator=g) * 12
    cy = torch.rand(n, 1, 1, generator=g) * 12
    return 3.0 * torch.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / 14.0)


def main():
    images = make_images(512, seed=1)
    model = AutoEncoder()
    recorder = NormRecorder(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)

    measured, clipped = [], 0
    for step in range(120):
        batch = images[torch.randint(0, len(images), (64,))]
        loss = F.mse_loss(model(batch), batch)
        opt.zero_grad()
        loss.backward()
        limit = recorder.clip_value()
        total = nn.utils.clip_grad_norm_(model.parameters(), limit).item()
        measured.append(total)
        clipped += total > limit
        opt.step()
        if step % 30 == 0:
            print(f"step {step:3d} loss {loss.item():.4f} recorded norm {recorder.norms[-1]:.4f}"
                  f" limit {limit:.4f}")

    recorder.handle.remove()
    gaps = [abs(a - b) / b for a, b in zip(recorder.norms, measured)]
    print(f"steps clipped: {clipped} of {len(measured)}")
    print(f"recorded against measured norm: mean gap {100 * sum(gaps) / len(gaps):.1f} percent,"
          f" largest {100 * max(gaps):.1f} percent")
    with torch.no_grad():
        print(f"final error {F.mse_loss(model(images), images).item():.4f}")


if __name__ == "__main__":
    main()
