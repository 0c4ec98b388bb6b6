"""Find the module and the step that produced the first NaN, although the loss stays finite.

A gate returns the square root of its input minus a threshold, and 0 for inputs below the threshold. `torch.where` hides
the square root of a negative number in the forward pass, but not in the backward pass, where 0 times NaN is NaN. The
gate learns its threshold, so training works until the first input falls below the threshold. A unit whose weights are
NaN returns 0. More and more units fail, and the loss returns to that of random guessing, ln 10 = 2.303.

    python examples/digits_nan.py
"""

import math
import tempfile

import torch
from sklearn.datasets import load_digits
from torch import nn

import tenterhook as th

torch.set_num_threads(1)
digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)


class RootGate(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.threshold = nn.Parameter(torch.full((size,), -0.3))

    def forward(self, x):
        above = x - self.threshold
        return torch.where(above > 0, above.sqrt(), 0.0)  # the fault: sqrt also runs on the masked elements


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(64, 48), nn.Softplus())
        self.gate = RootGate(48)
        self.head = nn.Linear(48, 10)

    def forward(self, x):
        return self.head(self.gate(self.stem(x)))


def build():
    torch.manual_seed(0)
    model = Net()
    return model, torch.optim.AdamW(model.parameters(), lr=3e-3)


def train(model, optimizer, steps):
    losses = []
    for _ in range(steps):
        batch = torch.randint(len(images), (64,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


model, optimizer = build()
with tempfile.TemporaryDirectory() as folder, th.flight(model, optimizer, folder) as rig:
    losses = train(model, optimizer, 300)
verdict = rig.verdict()
at = verdict.step
print(f"loss: {losses[0]:.3f} in step 0, {losses[at]:.3f} in step {at}, {losses[-1]:.3f} at the end")
print(verdict)

# Repeat the run up to that step, then check every value. The error is raised before the optimizer steps.
model, optimizer = build()
train(model, optimizer, at)
try:
    with th.find_nonfinite(model):
        train(model, optimizer, 1)
except th.NonFiniteError as error:
    found = error
finite = all(bool(p.isfinite().all()) for p in model.parameters())
print(f"find_nonfinite: {found}")
print(f"every weight is still finite: {finite}")

assert verdict.target.startswith("gate") and found.target.startswith("gate") and finite
assert all(map(math.isfinite, losses)), "the loss alone does not show the fault"
