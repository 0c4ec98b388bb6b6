"""A clip that learns what is normal is part of the training: saved and restored, the run ends with the same bits.

`th.clip_zscore` keeps a running mean and deviation of each gradient's norm and limits what lies far above. A run is
stopped half way and goes on twice: once with the hooks' state out of the checkpoint, once with the clip attached anew.

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
        wild = 10.0 if step % 7 == 0 else 1.0  # what the clip is there for: targets far off now and then
        loss = (model(x) - wild * x.prod(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def load(checkpoint):
    """Model and optimizer, and what the checkpoint knows of the hooks. Read anew each time: an optimizer trains the
    very tensors that it is given."""
    saved = torch.load(checkpoint)  # with its safe default: the hooks' state is plain tensors
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

print(f"{'':20}  steps counted  largest difference of a weight")
for name, one, its in (
    ("never stopped", model, rig),
    ("hooks restored", resumed, again),
    ("hooks attached anew", forgetful, anew),
):
    print(f"{name:20}  {its.step_count:13}  {distance(model, one):.3g}")

assert distance(model, resumed) == 0.0, "bit for bit"
assert distance(model, forgetful) > 1e-3, "the running mean began anew"
