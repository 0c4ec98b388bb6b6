# TH101
"""Hook the one linear layer of a model that has got three."""

from torch import nn

import tenterhook as th

model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 1))
th.hook(model, th.stats(), on="type:Linear", at="output", expect=1)  # <- TH101
