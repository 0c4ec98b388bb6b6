"""Adapt a model to a new domain (DANN) with one hook that reverses the gradient of the domain classifier.

The source data are two half moons with labels. The target data are the same moons, rotated by 35 degrees, without
labels. The features should be useful for the labels and should not reveal the domain. Therefore the domain head learns
to distinguish the domains, and a hook reverses the gradient that this head passes to the features. The label head uses
the same features, but at `grad_input` the hook receives only the part that comes from the domain head. This needs no
autograd.Function and no change to the model.

    python examples/gradient_reversal.py
"""

import math

import torch
from torch import nn

import tenterhook as th

torch.set_num_threads(1)
ANGLE, STEPS = math.radians(35), 600


def moons(count, seed, angle=0.0):
    draw = torch.Generator().manual_seed(seed)
    t = math.pi * torch.rand(count, generator=draw)
    label = torch.arange(count) % 2
    sign = 1.0 - 2.0 * label
    points = torch.stack([sign * t.cos() + label - 0.5, sign * t.sin() + 0.5 * label - 0.25], 1)
    points = points + 0.1 * torch.randn(count, 2, generator=draw)
    turn = torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    return points @ turn, label


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.label = nn.Linear(32, 2)
        self.domain = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, x):
        shared = self.features(x)
        return self.label(shared), self.domain(shared)


source, labels = moons(400, seed=1)
target, _ = moons(400, seed=2, angle=ANGLE)
unseen, truth = moons(1000, seed=3, angle=ANGLE)
both = torch.cat([source, target])
domains = torch.arange(2).repeat_interleave(400)


def accuracy(guess, truth):
    return (guess.argmax(1) == truth).float().mean().item()


def train(hooks):
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with th.attach(model, hooks, optimizer=optimizer):
        for _ in range(STEPS):
            label, domain = model(both)
            loss = nn.functional.cross_entropy(label[:400], labels) + nn.functional.cross_entropy(domain, domains)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        on_domains = accuracy(model(both)[1], domains)
        return accuracy(model(source)[0], labels), accuracy(model(unseen)[0], truth), on_domains


def head(do):
    return [th.Hook("head", on="domain", at="grad_input", do=do)]


plans = {"unchanged": [], "removed, scale(0.0)": head(th.scale(0.0)), "reversed, reverse()": head(th.reverse())}
print("accuracy on the source labels, the target labels and the domains")
print("gradient of the domain head   source  target  domain")
results = {}
for name, hooks in plans.items():
    results[name] = on_source, on_target, on_domains = train(hooks)
    print(f"{name:28}  {on_source:6.1%}  {on_target:6.1%}  {on_domains:6.1%}")

assert results["reversed, reverse()"][1] > results["unchanged"][1] + 0.1, "the accuracy on the target improves"
assert results["reversed, reverse()"][2] < results["unchanged"][2], "the features reveal less about the domain"
