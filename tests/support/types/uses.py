"""Use the API rightly, and wrongly in lines that end with `# wrong`. Type checkers read this file; nothing runs it."""

import torch
from torch import Tensor, nn

import tenterhook as th

model = nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.ones(2, requires_grad=True)

# -- actions ----------------------------------------------------------------------------------------------------------

th.scale(2.0)
th.scale(by=2)
th.clip_value(1.0)
th.clip_norm(1.0)
th.clip_norm(max=1.0, over="hook")
th.clip_adaptive()
th.clip_adaptive(0.02, floor=1e-4)
th.clip_zscore(3.0, alpha=0.9, warmup=10, over="target")
th.mask("kept")
th.reverse()
th.reverse(0.5)
th.noise(0.1, seed=3)
th.nan_to_num(0.0, posinf=1.0, neginf=None)
th.steer("v", scale=2.0)
th.steer(by="v")
th.steer(x)
th.mask(x)
th.stats()
th.histogram()
th.ratio()
th.watch_nonfinite()
th.spike(4.0, floor=0.1)
th.capture()

th.scale()  # wrong
th.scale("2")  # wrong
th.scale(2.0, 3.0)  # wrong
th.clip_value(limit=1.0)  # wrong
th.clip_norm()  # wrong
th.clip_norm("1")  # wrong
th.clip_norm(max_norm=1.0)  # wrong
th.clip_norm(1.0, over="global")  # wrong
th.clip_norm(1.0, "hook")  # wrong
th.clip_adaptive(ratio="small")  # wrong
th.clip_zscore(warmup=2.5)  # wrong
th.clip_zscore(over=3)  # wrong
th.mask(3)  # wrong
th.noise()  # wrong
th.noise(0.1, seed="a")  # wrong
th.nan_to_num(nan=None)  # wrong
th.steer()  # wrong
th.stats(every=10)  # wrong
th.spike(threshold=4.0)  # wrong
th.capture(3)  # wrong

# -- hooks and plans --------------------------------------------------------------------------------------------------

th.Hook("a", on="**", at="grad", do=th.stats())
th.Hook("a", on=["0", "1"], at="output", do=th.capture)
th.Hook("a", on=("0", "!0.1"), at="grad_final", do=lambda g: g * 2)
th.Hook("a", on="**", at="update", do=th.ratio(), when=th.When(every=10, phase="train"), expect=3, on_error="mute")
th.When(start=5, stop=10, phase="any")
th.When(after_trip=20)
th.When().due(3)
th.Plan([th.Hook("a", on="**", at="grad", do=th.stats())])
th.Action("scale", {"by": 2.0})

th.Hook("a", on="**", at="gradient", do=th.stats())  # wrong
th.Hook("a", on=nn.Linear, at="grad", do=th.stats())  # wrong
th.Hook("a", on=[1, 2], at="grad", do=th.stats())  # wrong
th.Hook("a", "**", "grad", th.stats())  # wrong
th.Hook("a", on="**", at="grad")  # wrong
th.Hook("a", on="**", at="grad", do="stats")  # wrong
th.Hook("a", on="**", at="grad", do=th.stats(), when=10)  # wrong
th.Hook("a", on="**", at="grad", do=th.stats(), on_error="ignore")  # wrong
th.Hook("a", onn="**", at="grad", do=th.stats())  # wrong
th.When(phase="training")  # wrong
th.When(every="10")  # wrong
th.When(10)  # wrong
th.Plan(th.stats())  # wrong
th.Action(3)  # wrong

# -- attaching --------------------------------------------------------------------------------------------------------

rig = th.attach(model, [th.Hook("a", on="**", at="grad", do=th.stats())], optimizer=optimizer)
th.attach(model, th.Hook("b", on=".", at="output", do=th.steer("v")), tensors={"v": x}, replace=True)
th.watch(model, optimizer, every=10)
th.hook(x, th.clip_norm(1.0))
th.hook(x, lambda g: g * 2)
th.hook(model, th.capture(), on=["."], at="output")
th.check(rig)
count: int = th.detach(model)
step: int = rig.step_count
tensors: dict[str, Tensor] = rig.state_dict()
with rig.step():
    pass
with th.hook(x, th.scale(2.0)) as handle:
    fired: int = handle.fired
rig.mute("a")
norm: float = rig.values("a")["0"]["norm"] * 2
shape: torch.Size = rig.captured("a")["0"][-1].shape
bins: list[float] = rig.vectors("a")["0"]["bins"]
th.capture(leaf=0, to="cpu", most=10)
text: str = rig.rows("a")[0].target

th.attach(model)  # wrong
th.attach(model, th.stats())  # wrong
th.attach([th.Hook("a", on="**", at="grad", do=th.stats())], model)  # wrong
th.attach(model, [], optimiser=optimizer)  # wrong
th.watch(model, optimizer, 10)  # wrong
th.watch(every=10)  # wrong
th.hook(model, th.capture(), at="outputs")  # wrong
th.hook(model)  # wrong
th.detach()  # wrong
rig.mute(3)  # wrong
rig.values()  # wrong
rig.captured("a")["0"].shape  # wrong
shapes: list[torch.Size] = rig.values("a")["0"]["norm"]  # wrong
th.capture(to="cuda")  # wrong
th.capture(leaf="first")  # wrong
rig.state  # wrong
name: str = rig.step_count  # wrong

# -- own actions ------------------------------------------------------------------------------------------------------


@th.action("soft_clip", modifies=True, elementwise=True)
def soft_clip(x: Tensor, *, limit: float = 1.0) -> Tensor:
    return limit * torch.tanh(x / limit)


@th.action(at=["grad", "grad_final"])
def show(x: Tensor, ctx: th.Context, /, every: int, *, label: str = "") -> None:
    ctx.emit(label, x.norm())


@th.action
def plain(x: Tensor) -> None: ...


@th.action("signs", measure=lambda x: {"signs": (x < 0).sum()}, partials={"signs": "sum"}, state={"mean": 0.0})
def signs(merged: dict[str, Tensor], state: dict[str, Tensor], *, floor: float = 0.0) -> dict[str, Tensor]:
    return merged


soft_clip()
soft_clip(limit=2.0)
show(10)
show(every=10, label="norm")
plain()
signs(floor=1.0)
registry = th.Registry()
registry.add(soft_clip)(limit=3.0)

soft_clip(limit="2")  # wrong
soft_clip(limits=2.0)  # wrong
show()  # wrong
show("often")  # wrong
show(10, "norm")  # wrong
plain(3)  # wrong
signs(floor="x")  # wrong
th.action("a", at="grads")  # wrong
th.action("a", modify=True)  # wrong
th.action("a", partials={"n": "mean"})  # wrong
th.Partial("mean")  # wrong
