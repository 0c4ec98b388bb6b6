"""Save and restore the state of an adaptive clip, so that a resumed run ends with the same bits.

`th.clip_zscore` keeps a running mean and standard deviation of each gradient's norm, and clips norms that are far above
the mean. A run is stopped in the middle and resumed twice: once with the hook state from the checkpoint, and once with
a new clip.

    python examples/resume_clip.py
"""

import tempfile
from pathlib import Path

import torch
from torch import nn

import tenterhook as th

torch.set_num_threads(1)
HALF, END = 60, 120
plan = th.Plan([th.Hook("clip", on="**", at="grad_final", do=th.clip_zscore(z=1.0, warmup=10))])


def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def train(model, optimizer, steps):
    for step in steps:
        draw = torch.Generator().manual_seed(step)  # the batch of a step is the same in every run
        x = torch.randn(32, 8, generator=draw)
        wild = 10.0 if step % 7 == 0 else 1.0  # a few outliers, which the clip should limit
        loss = (model(x) - wild * x.prod(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def load(checkpoint):
    """Load the model, the optimizer and the hook state from the checkpoint.

    Each run loads them again, since an optimizer changes the loaded tensors in place.
    """
    saved = torch.load(checkpoint)  # the safe default works, since the hook state contains only plain tensors
    model, optimizer = build()
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return model, optimizer, saved["hooks"]


def distance(a, b):
    return max((p - q).abs().max().item() for p, q in zip(a.parameters(), b.parameters(), strict=True))


with tempfile.TemporaryDirectory() as folder:
    checkpoint = Path(folder) / "half.pt"
    model, optimizer = build()
    rig = th.attach(model, plan, optimizer=optimizer)
    train(model, optimizer, range(HALF))
    torch.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "hooks": rig.state_dict()}, checkpoint
    )
    train(model, optimizer, range(HALF, END))  # this run is never stopped

    resumed, optimizer, hooks = load(checkpoint)
    again = th.restore(resumed, hooks, optimizer=optimizer)
    train(resumed, optimizer, range(HALF, END))

    forgetful, optimizer, _ = load(checkpoint)
    anew = th.attach(forgetful, plan, optimizer=optimizer)
    train(forgetful, optimizer, range(HALF, END))

print(f"{'':20}  steps counted  largest weight difference")
for name, one, its in (
    ("never stopped", model, rig),
    ("hooks restored", resumed, again),
    ("new hooks attached", forgetful, anew),
):
    print(f"{name:20}  {its.step_count:13}  {distance(model, one):.3g}")

assert distance(model, resumed) == 0.0, "bit for bit"
assert distance(model, forgetful) > 1e-3, "the running mean started again from zero"
