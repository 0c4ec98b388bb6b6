# TH102
"""Read the plan from a file that names an action which this program never registered."""

from torch import nn

import tenterhook as th

plan = th.Plan.from_toml("""
tenterhook = 1

[[hook]]
id = "sparsify"
on = "**.weight"
at = "grad"
do = {top_k = {share = 0.1}}
""")
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
rig = th.attach(model, plan)  # <- TH102
