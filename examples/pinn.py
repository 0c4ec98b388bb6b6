"""Solve u'(x) = -u(x) with a physics-informed network, first with Adam and then with LBFGS.

python examples/pinn.py
"""

import torch
from torch import nn

import tenterhook as th

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1)).double()
adam = torch.optim.Adam(model.parameters(), lr=1e-2)
lbfgs = torch.optim.LBFGS(model.parameters(), max_iter=20, line_search_fn="strong_wolfe")
rig = th.attach(
    model,
    [
        th.Hook("norms", on="**.weight", at="grad_final", do=th.stats()),
        th.Hook("updates", on="**.weight", at="update", do=th.stats()),
    ],
    optimizer={"adam": adam, "lbfgs": lbfgs},
)


def loss() -> torch.Tensor:
    x = torch.linspace(0, 2, 64, dtype=torch.float64).view(-1, 1).requires_grad_()
    u = model(x)
    (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    start = model(torch.zeros(1, 1, dtype=torch.float64)) - 1
    return (slope + u).square().mean() + start.square().mean()


def closure() -> torch.Tensor:
    lbfgs.zero_grad()
    value = loss()
    value.backward()
    return value


for _ in range(50):
    adam.zero_grad()
    loss().backward()
    adam.step()
print(f"after Adam:  {loss().item():.1e}, {rig.step_count} steps")
for _ in range(4):
    lbfgs.step(closure)
error = (model(torch.ones(1, 1, dtype=torch.float64)) - torch.exp(torch.tensor(-1.0))).abs().item()
print(f"after LBFGS: {loss().item():.1e}, {rig.step_count} steps, error at x = 1: {error:.1e}")
print({target: f"{numbers['norm']:.1e}" for target, numbers in rig.values("updates").items()})
assert not th.check(rig) and rig.step_count == 54, "both optimizers end steps"
assert error < 1e-2
