"""Models in which one module makes the first NaN or infinity, in the forward or the backward pass of step `WHEN`.

`HEALTHY` has unusual models in which nothing goes wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

#: the step in which the module fails
WHEN = 5


class Do(nn.Module):
    """Compute `well(x)`, or `badly(x)` while `bad` is True."""

    def __init__(self, well: Callable[[Tensor], Any], badly: Callable[[Tensor], Any] | None = None) -> None:
        super().__init__()
        self.well, self.badly, self.bad = well, badly, False

    def forward(self, x: Tensor) -> Any:
        return (self.badly if self.bad and self.badly is not None else self.well)(x)


class Pick(nn.Module):
    def __init__(self, inner: nn.Module, key: Any) -> None:
        super().__init__()
        self.inner, self.key = inner, key

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)[self.key]


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


class Masked(nn.Module):
    """Compute attention scores in which a separate module sets intended values of -inf."""

    def __init__(self, width: int, value: nn.Module | None = None) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value = value or nn.Linear(width, width)
        self.mask = Do(lambda s: s.masked_fill(torch.ones_like(s).triu(1).bool(), -torch.inf))
        self.softmax = nn.Softmax(-1)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.query(x) @ self.key(x).transpose(-1, -2)
        return self.softmax(self.mask(scores)) @ self.value(x)


class Twice(nn.Module):
    """Add the outputs of two modules for the same input; one of the modules may fail."""

    def __init__(self, one: nn.Module, other: nn.Module) -> None:
        super().__init__()
        self.one, self.other = one, other

    def forward(self, x: Tensor) -> Tensor:
        return self.one(x) + self.other(x)


def safe_root(x: Tensor) -> Tensor:
    """Return `x` in a way that makes a NaN gradient: the gradient of the unused branch is 0 * inf."""
    return torch.where(x > 0, (x - x.detach()).sqrt() + x, x)


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * torch.inf


def line(*parts: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), *parts, nn.Linear(6, 2))


FORWARD: dict[str, Callable[[Tensor], Tensor]] = {
    "log_of_a_negative": lambda x: (x - 10).log(),
    "root_of_a_negative": lambda x: (x - 10).sqrt(),
    "quotient_of_zeros": lambda x: (x - x) / (x - x),
    "overflow": lambda x: (x.abs() * 200 + 100).exp(),
    "half_overflow": lambda x: (x.abs() + 1).half().mul(60000).mul(2).float(),
    "norm_of_nothing": lambda x: x / (x - x).norm(dim=-1, keepdim=True),
    "power": lambda x: (-x.abs() - 1) ** 0.5,
    "arccos": lambda x: (x.abs() + 2).acos(),
}
BACKWARD: dict[str, Callable[[Tensor], Tensor]] = {
    "masked_root": safe_root,
    "root_at_zero": lambda x: x + (x - x).abs().sqrt(),
    "norm_at_zero": lambda x: x + (x - x).pow(2).sum(-1, keepdim=True).sqrt(),
    "own_function": Scaled.apply,
    "power_at_zero": lambda x: x + (x - x) ** 0.5,
    "masked_logarithm": lambda x: torch.where(x > 9, (x - x).log(), x),
}


@dataclass(frozen=True)
class Case:
    name: str
    make: Callable[[], tuple[nn.Module, nn.Module | None]]
    #: the module that makes the first value that is not finite
    producer: str | None


def planted(badly: Callable[[Tensor], Any], shape: str) -> tuple[nn.Module, Do]:
    do = Do(lambda x: x * 1.0, badly)
    inner: nn.Module = do
    if shape == "residual":
        inner = Residual(nn.Sequential(nn.Linear(6, 6), do))
    elif shape == "dict":
        inner = Pick(Do(lambda x: {"a": x, "b": (x, x)}), "a")
        inner = nn.Sequential(do, inner)
    elif shape == "beside":
        inner = Twice(nn.Linear(6, 6), do)
    elif shape == "attention":
        inner = Masked(6, do)
    return line(inner), do


NAMES = {"line": "2", "residual": "2.inner.1", "dict": "2.0", "beside": "2.other", "attention": "2.value"}


def _case(name: str, badly: Callable[[Tensor], Tensor], shape: str) -> Case:
    return Case(f"{name}-{shape}", lambda: planted(badly, shape), NAMES[shape])


SHAPES = list(NAMES)
CASES = [
    _case(name, badly, SHAPES[(number + turn) % len(SHAPES)])
    for turn in (0, 2)
    for number, (name, badly) in enumerate({**FORWARD, **BACKWARD}.items())
]


def _lstm() -> nn.Module:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.head = nn.LSTM(4, 6, batch_first=True), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.lstm(x)[0])

    return Last()


HEALTHY: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: line(nn.Linear(6, 6), nn.GELU()),
    "attention_with_a_mask": lambda: line(Masked(6)),
    "two_attentions": lambda: line(Residual(Masked(6)), Residual(Masked(6))),
    "encoder": lambda: line(nn.TransformerEncoderLayer(6, 2, 12, dropout=0.0, batch_first=True)),
    "batch_norm": lambda: line(Do(lambda x: x.transpose(1, 2)), nn.BatchNorm1d(6), Do(lambda x: x.transpose(1, 2))),
    "lstm": _lstm,
    "structured": lambda: line(Pick(Do(lambda x: (x, {"y": x})), 0)),
    "dropout": lambda: line(nn.Dropout(0.5), nn.Linear(6, 6)),
    "in_place": lambda: line(nn.Linear(6, 6), nn.ReLU(inplace=True)),
    "layer_norm": lambda: line(nn.LayerNorm(6), nn.Linear(6, 6), nn.LayerNorm(6)),
    "maximum_of_a_masked_row": lambda: line(Do(lambda x: x.masked_fill(x < -9, -torch.inf)), nn.Linear(6, 6)),
    "log_softmax": lambda: line(nn.LogSoftmax(-1)),
}


def run(model: nn.Module, optimizer: torch.optim.Optimizer, do: Do | None, steps: int) -> None:
    generator = torch.Generator().manual_seed(1)
    for step in range(steps):
        if do is not None:
            do.bad = step == WHEN
        optimizer.zero_grad()
        out = model(torch.randn(8, 5, 4, generator=generator))
        cross_entropy(out.flatten(0, 1), torch.randint(2, (40,), generator=generator)).backward()
        optimizer.step()
