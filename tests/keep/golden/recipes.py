"""Define the plans and the runs from which golden files are made.

A golden state is always compared with the recipe of its name. So never change a recipe; add a new one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

import tenterhook as th

ACTIONS = th.Registry()


@th.action("count", registry=ACTIONS, at=["output", "value"], state={"calls": 0.0, "peak": -1.0})
def count(x: Tensor, ctx: th.Context) -> None:
    ctx.state["calls"] = ctx.state["calls"] + 1
    ctx.state["peak"] = torch.maximum(ctx.state["peak"], x.max().double())
    ctx.state["first"] = x[0]


@th.action("keep", registry=ACTIONS, at="grad", version=3)
def keep(grad: Tensor, ctx: th.Context, *, most: float = 8.0) -> None:
    whole = (grad * 4).round().clamp(-most, most)
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
                  torch.float64, torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2):  # fmt: skip
        ctx.state[str(dtype).removeprefix("torch.")] = whole.to(dtype)
    for dtype in (torch.uint8, torch.uint16, torch.uint32, torch.uint64):
        ctx.state[str(dtype).removeprefix("torch.")] = whole.abs().to(dtype)
    ctx.state["positive"] = grad > 0
    ctx.state["scalar"] = whole.sum()
    ctx.state["box/of three"] = whole.reshape(1, 1, -1)
    ctx.state["none"] = whole.new_empty(0, 2)


@th.action("choosy", registry=ACTIONS, at="grad")
def choosy(grad: Tensor, ctx: th.Context) -> None:
    if ctx.target == "first.weight":
        raise ValueError("not “this” one")


@th.action("look", registry=ACTIONS, at="step_pre")
def look(optimizer: torch.optim.Optimizer, ctx: th.Context) -> None:
    ctx.emit("lr", optimizer.param_groups[0]["lr"])


def dyadic(*shape: int, start: int = 1) -> Tensor:
    """Return numbers whose sums and products are exact, so that all machines get the same results."""
    size = torch.Size(shape).numel()
    return ((torch.arange(start, start + size) * 5 % 8) - 3.5).reshape(shape) / 4


class Net(nn.Module):
    """Combine two trained layers, a frozen layer, a layer that is never called, and two taps."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 3)
        self.last = nn.Linear(3, 1)
        self.frozen = nn.Linear(1, 1, bias=False).requires_grad_(False)
        self.unused = nn.Linear(1, 1)
        with torch.no_grad():
            for i, parameter in enumerate(self.parameters()):
                parameter.copy_(dyadic(*parameter.shape, start=i))

    def forward(self, x: Tensor) -> Tensor:
        hidden = th.tap(self.first(x), "hidden", within=self.first).relu()
        return self.frozen(th.tap(self.last(hidden), "end", within=self))


@dataclass(frozen=True)
class Recipe:
    plan: th.Plan
    steps: int = 4
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    #: what happens to the job after the steps, before the state is saved
    then: Callable[[Job], None] = lambda job: None


class Job:
    """Train a model as a recipe describes."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.model = Net()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.25)
        self.rig: th.Rig

    def attach(self) -> Job:
        self.rig = th.attach(
            self.model, self.recipe.plan, optimizer=self.optimizer, actions=ACTIONS, tensors=self.recipe.tensors
        )
        return self

    def run(self) -> Job:
        """Run the recipe up to the moment of saving."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "tenterhook muted a hook", RuntimeWarning)
            for _ in range(self.recipe.steps):
                self.step()
            self.recipe.then(self)
        return self

    def backward(self) -> None:
        step = self.rig.step_count
        self.model(dyadic(2, 2, start=step) * (8 if step % 5 == 3 else 1)).sum().backward()

    def step(self) -> None:
        """Run a step. Gradients are not cleared first, since the step may have begun before the state was saved."""
        self.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def half_a_step(job: Job) -> None:
    job.model.eval()
    job.model(dyadic(1, 2))
    job.model.train()
    job.backward()
    job.backward()


def troubles(job: Job) -> None:
    job.rig.mute("quiet")
    job.model.last.weight = nn.Parameter(job.model.last.weight.detach().clone())
    job.optimizer.add_param_group({"params": [job.model.last.weight]})
    job.model.eval()
    job.model(dyadic(1, 2))
    job.model.train()
    job.step()


RECIPES = {
    "packed": Recipe(th.Plan([
        th.Hook("each", on="first.*", at="grad_final", do=th.clip_zscore(z=1.5, warmup=2)),
        th.Hook("all", on=("**", "!unused.*"), at="grad_final", do=th.clip_zscore(over="hook"), when=th.When(every=2)),
        th.Hook("spike", on="type:Linear", at="grad_accumulated", do=th.spike(z=1.0, warmup=1), on_error="raise"),
        th.Hook("after", on="last", at="output", do=th.stats(), when=th.When(after_trip=3, phase="train")),
        th.Hook("late", on="**.bias", at="grad_final", do=th.clip_zscore(), when=th.When(start=100, stop=200)),
    ])),
    "free": Recipe(th.Plan([
        th.Hook("keep", on=("first.weight", "last.*"), at="grad", do=th.Action("keep", {"most": 6.5}), expect=3),
    ]), steps=2),
    "drawn": Recipe(th.Plan([
        th.Hook("noise", on="first.*", at="grad", do=th.noise(std=0.125, seed=7)),
        th.Hook("ahead", on="last", at="output", do=th.noise(std=0.25)),
        th.Hook("steer", on="first", at="output", do=th.steer(by="direction", scale=0.5)),
        th.Hook("mask", on="first.bias", at="grad_final", do=th.mask(by="which")),
    ]), steps=2, tensors={"direction": dyadic(3), "which": torch.tensor([1.0, 0.0, 1.0])}),
    "taps": Recipe(th.Plan([
        th.Hook("seen", on="*:hidden", at="value", do=th.Action("count")),
        th.Hook("clip", on="**", at="value_grad", do=th.clip_zscore(warmup=1)),
    ]), steps=3),
    "between": Recipe(th.Plan([
        th.Hook("grads", on="first.*", at="grad", do=th.stats()),
        th.Hook("outputs", on=("first", "unused"), at="output", do=th.stats(), when=th.When(phase="any")),
        th.Hook("bins", on="last.weight", at="grad_accumulated", do=th.histogram()),
        th.Hook("calls", on="type:Linear", at="output", do=th.Action("count")),
    ]), steps=1, then=half_a_step),
    "troubles": Recipe(th.Plan([
        th.Hook("choosy", on="**", at="grad", do=th.Action("choosy")),
        th.Hook("finals", on="**", at="grad_final", do=th.watch_nonfinite()),
        th.Hook("quiet", on="last", at="output", do=th.stats()),
        th.Hook("outputs", on="first", at="output", do=th.stats()),
        th.Hook("steps", on="optimizer", at="step_pre", do=th.Action("look")),
    ]), steps=2, then=troubles),
}  # fmt: skip

#: plans as people write them
PLANS = {
    "plan.json": """\
{
  "hooks": [
    {"id": "Grad-norm.1#a", "on": ["**", "!*.bias", "blocks.*:probs"], "at": "grad_final", "do": "stats",
     "when": {"stop": 1000, "every": 10, "start": 5, "phase": "train", "after_trip": 3},
     "expect": 0, "on_error": "mute"},
    {"do": {"clip_norm": {"over": "hook", "max": 1.0}}, "at": "grad_final", "on": ["**"], "id": "clip", "when": {}},
    {"id": "own", "on": "type:torch.nn.Linear", "at": "output", "expect": null, "on_error": "raise", "do": {"mine": {
      "tiny": 1e-7, "third": 0.1, "huge": 1e22, "whole": -0.0, "most": 9007199254740992, "none": null, "yes": true,
      "text": "\\u00e9 \\"quoted\\" \\\\ \\t \\ud83d\\ude00 /", "\u00e4": [1.0, [2.5, {"deep": []}]], "Z": 1, "a": 2}}}
  ],
  "tenterhook": 1
}
""",
    "plan.toml": """\
tenterhook = 1

[[hook]]
id = "Grad-norm.1#a"
on = ["**", "!*.bias", "blocks.*:probs"]
at = "grad_final"
do = "stats"
when = {every = 10, start = 5, stop = 1000, phase = "train", after_trip = 3}
expect = 0
on_error = "mute"

[[hook]]
id = "clip"
on = "**"
at = "grad_final"
do = {clip_norm = {max = 1, over = "hook"}}

[[hook]]
id = "other"
on = "type:Linear"
at = "output"
[hook.do.mine]
tiny = 1e-7
deep = [1.0, [2.5]]
text = "\u00e9 \\"quoted\\""
""",
}
