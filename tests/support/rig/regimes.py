"""Defines the columns of the matrix: the ways to train in one process, small enough to compare bit for bit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import tenterhook as th
from tests.support.rig.by_hand import Hand


class Net(nn.Module):
    """Has three layers. The hooks are on `mid`, and its output is the tap `:mark`."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.mid: nn.Module = nn.Linear(4, 4)
        self.last = nn.Linear(4, 4)
        self.hand = Hand(None)

    def call_mid(self, x: Tensor) -> Tensor:
        hand = self.hand
        x = hand.gradient("grad_input", hand.value("input", x), alias=True)
        y = self.mid(x)
        y = hand.gradient("grad_output", hand.value("output", y))
        y = hand.gradient("value_grad", hand.value("value", y), alias=True)
        return th.tap(y, "mark")

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.call_mid(torch.tanh(self.first(x)))))


class Regime:
    """Trains in plain eager mode. The other regimes override what they do differently."""

    steps = 3
    net: type[Net] = Net
    #: prefix of the name of `mid`
    prefix = ""
    #: the regime to compare with, if not this one, and the allowed difference
    reference: type[Regime] | None = None
    close = 0.0

    def wrapped(self, model: Net) -> Net:
        return model

    def model(self) -> Net:
        torch.manual_seed(0)
        return self.net()

    def optimizers(self, model: Net) -> dict[str, torch.optim.Optimizer]:
        return {"all": torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)}

    def batch(self, step: int, micro: int = 0) -> Tensor:
        generator = torch.Generator("cpu").manual_seed(100 * step + micro)
        return torch.randn(3, 4, generator=generator, device="cpu").to(torch.get_default_device())

    def loss(self, model: Net, x: Tensor) -> Tensor:
        return model(x).square().mean()

    def backward(self, model: Net, step: int) -> None:
        self.loss(model, self.batch(step)).backward()

    def train(self, model: Net, optimizers: dict[str, torch.optim.Optimizer], hand: Hand) -> None:
        model.hand = hand
        hand.on_parameter(model.mid.weight)
        hand.on_state(model.mid)
        for step in range(self.steps):
            for optimizer in optimizers.values():
                optimizer.zero_grad()
            self.backward(model, step)
            self.step(model, optimizers, hand, step)
            self.between(model, optimizers, hand, step)
        model.load_state_dict(model.state_dict())

    def step(self, model: Net, optimizers: dict[str, torch.optim.Optimizer], hand: Hand, step: int) -> None:
        for optimizer in optimizers.values():
            if any(model.mid.weight is p for g in optimizer.param_groups for p in g["params"]):
                hand.final(model.mid.weight)
            hand.step(model.mid.weight, optimizer, optimizer.step)

    def between(self, model: Net, optimizers: dict[str, torch.optim.Optimizer], hand: Hand, step: int) -> None:
        pass


class Eager(Regime):
    pass


class CalledTwice(Regime):
    class net(Net):  # noqa: N801
        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.call_mid(torch.tanh(self.call_mid(self.first(x)))))


class TiedWeights(Regime):
    class net(Net):  # noqa: N801
        def __init__(self) -> None:
            super().__init__()
            self.last.weight = self.mid.weight


class Accumulation(Regime):
    def backward(self, model: Net, step: int) -> None:
        for micro in range(3):
            (self.loss(model, self.batch(step, micro)) / 3).backward()


class TwoBackwards(Regime):
    def backward(self, model: Net, step: int) -> None:
        out = model(self.batch(step))
        out.square().mean().backward(retain_graph=True)
        out.sum().backward()


class AutogradGrad(Regime):
    def backward(self, model: Net, step: int) -> None:
        parameters = list(model.parameters())
        for p, g in zip(parameters, torch.autograd.grad(self.loss(model, self.batch(step)), parameters), strict=True):
            p.grad = g


class CreateGraph(Regime):
    def backward(self, model: Net, step: int) -> None:
        loss = self.loss(model, self.batch(step))
        gradients = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
        (loss + sum(g.square().sum() for g in gradients)).backward()


class ScalerSkips(Regime):
    """Trains with a GradScaler. The loss of the second step is infinite, so that step is skipped."""

    steps = 4

    def model(self) -> Net:
        self.scaler = torch.amp.GradScaler(torch.get_default_device().type, init_scale=1024.0)
        return super().model()

    def backward(self, model: Net, step: int) -> None:
        loss = self.loss(model, self.batch(step))
        self.scaler.scale(loss * (torch.inf if step == 1 else 1.0)).backward()

    def step(self, model: Net, optimizers: dict[str, torch.optim.Optimizer], hand: Hand, step: int) -> None:
        (optimizer,) = optimizers.values()
        if hand.point is None:
            self.scaler.step(optimizer)
        else:  # the hook by hand needs the unscaled gradient, which the optimizer will use
            self.scaler.unscale_(optimizer)
            if step == 1:
                self.scaler.step(optimizer)
            else:
                hand.final(model.mid.weight)
                hand.step(model.mid.weight, optimizer, lambda: self.scaler.step(optimizer))
        self.scaler.update()


class ScalerFused(ScalerSkips):
    def optimizers(self, model: Net) -> dict[str, torch.optim.Optimizer]:
        return {"all": torch.optim.Adam(model.parameters(), lr=0.1, fused=True)}


class Autocast(Regime):
    def loss(self, model: Net, x: Tensor) -> Tensor:
        with torch.autocast(torch.get_default_device().type, torch.bfloat16):
            return model(x).float().square().mean()


class CheckpointNonReentrant(Regime):
    class net(Net):  # noqa: N801
        reentrant = False

        def forward(self, x: Tensor) -> Tensor:
            h = checkpoint(
                lambda x: torch.tanh(self.call_mid(torch.tanh(x))), self.first(x), use_reentrant=self.reentrant
            )
            return self.last(h)


class CheckpointReentrant(Regime):
    class net(CheckpointNonReentrant.net):  # noqa: N801
        reentrant = True


class InPlace(Regime):
    class net(Net):  # noqa: N801
        def call_mid(self, x: Tensor) -> Tensor:
            hand = self.hand
            x = hand.gradient("grad_input", hand.value("input", x), alias=True)
            y = hand.gradient("grad_output", hand.value("output", self.mid(x)))
            torch.relu_(y)
            y = hand.gradient("value_grad", hand.value("value", y), alias=True)
            return th.tap(y, "mark") * 1.0

        def forward(self, x: Tensor) -> Tensor:
            h = self.first(x)
            y = self.call_mid(h)
            y += h
            return self.last(y)


class Structured(Regime):
    """Has a `mid` that takes keywords and returns a dict. By hand, each leaf is hooked."""

    class Mid(nn.Linear):
        def forward(self, pair: tuple[Tensor, Tensor], *, scale: Tensor) -> dict[str, Any]:  # type: ignore[override]
            y = super().forward(pair[0] + pair[1])
            return {"y": y, "more": [y * scale, {"norm": y.norm()}], "note": "text"}

    class net(Net):  # noqa: N801
        def __init__(self) -> None:
            super().__init__()
            self.mid = Structured.Mid(4, 4)

        def call_mid(self, x: Tensor) -> Tensor:
            hand = self.hand

            def given(t: Tensor) -> Tensor:
                return hand.value("input", t)

            def aliased(t: Tensor) -> Tensor:
                return hand.gradient("grad_input", t, alias=True)

            def returned(t: Tensor) -> Tensor:
                return hand.gradient("grad_output", hand.value("output", t), alias=True)

            twice, mean = x * 2, x.mean()
            a, b, scale = given(x), given(twice), given(mean)
            out = self.mid((aliased(a), aliased(b)), scale=aliased(scale))
            y, scaled, norm = returned(out["y"]), returned(out["more"][0]), returned(out["more"][1]["norm"])
            y = hand.gradient("value_grad", hand.value("value", y + scaled / norm), alias=True)
            return th.tap(y, "mark")


class Replaced(Regime):
    """Replaces the parameter by another tensor after the first step, as `load_state_dict(assign=True)` does."""

    def between(self, model: Net, optimizers: dict[str, torch.optim.Optimizer], hand: Hand, step: int) -> None:
        if step != 0:
            return
        old = model.mid.weight
        model.mid.weight = nn.Parameter(old.detach().clone())
        for optimizer in optimizers.values():
            optimizer.state[model.mid.weight] = optimizer.state.pop(old)
            for group in optimizer.param_groups:
                group["params"] = [model.mid.weight if p is old else p for p in group["params"]]
        hand.again_on_parameter(model.mid.weight)


class Swapped(Regime):
    """Swaps the tensor of the parameter after the first step, as `.to()` may do."""

    def between(self, model: Net, optimizers: dict[str, torch.optim.Optimizer], hand: Hand, step: int) -> None:
        if step == 0:
            torch.utils.swap_tensors(model.mid.weight, nn.Parameter(model.mid.weight.detach().clone()))
            hand.again_on_parameter(model.mid.weight) if hand.point is not None else None


class Closure(Regime):
    def optimizers(self, model: Net) -> dict[str, torch.optim.Optimizer]:
        return {"all": torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)}

    def backward(self, model: Net, step: int) -> None:
        pass

    def step(self, model: Net, optimizers: dict[str, torch.optim.Optimizer], hand: Hand, step: int) -> None:
        (optimizer,) = optimizers.values()

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = self.loss(model, self.batch(step))
            loss.backward()
            hand.final(model.mid.weight)
            return loss

        hand.step(model.mid.weight, optimizer, lambda: optimizer.step(closure))


class TwoOptimizers(Regime):
    def optimizers(self, model: Net) -> dict[str, torch.optim.Optimizer]:
        first = torch.optim.Adam([*model.first.parameters(), *model.mid.parameters()], lr=0.01)
        return {"front": first, "back": torch.optim.SGD(model.last.parameters(), lr=0.1)}


class NoOptimizer(Regime):
    def optimizers(self, model: Net) -> dict[str, torch.optim.Optimizer]:
        return {}

    def step(self, model: Net, optimizers: dict[str, torch.optim.Optimizer], hand: Hand, step: int) -> None:
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
                p.grad = None


REGIMES: dict[str, type[Regime]] = {
    "eager": Eager,
    "called twice": CalledTwice,
    "tied weights": TiedWeights,
    "accumulation": Accumulation,
    "two backwards": TwoBackwards,
    "autograd.grad": AutogradGrad,
    "create_graph": CreateGraph,
    "GradScaler, skipped step": ScalerSkips,
    "GradScaler, fused": ScalerFused,
    "autocast": Autocast,
    "checkpoint, reentrant": CheckpointReentrant,
    "checkpoint, non-reentrant": CheckpointNonReentrant,
    "in-place": InPlace,
    "structured, kwargs": Structured,
    "parameter replaced": Replaced,
    "parameter swapped": Swapped,
    "closure (LBFGS)": Closure,
    "two optimizers": TwoOptimizers,
    "no optimizer": NoOptimizer,
}
