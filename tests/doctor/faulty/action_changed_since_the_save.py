# TH110
"""Resume a run whose own action was given another formula in the meantime."""

import torch
from torch import nn

import tenterhook as th


def attach(formula):
    actions = th.Registry()
    soften = th.action("soften", at=["grad"], modifies=True, elementwise=True, registry=actions)(formula)
    model = nn.Linear(3, 1)
    plan = th.Plan([th.Hook("soft", on="weight", at="grad", do=soften())])
    return model, th.attach(model, plan, actions=actions)


def halve(grad):
    return grad * 0.5


def quarter(grad):
    return grad * 0.25 + 0.0


model, rig = attach(halve)
model(torch.ones(2, 3)).sum().backward()
saved = rig.state_dict()
fresh, again = attach(quarter)
again.load_state_dict(saved)  # <- TH110
