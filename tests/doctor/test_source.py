"""Test what the doctor reads from the bytecode of a function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tenterhook.doctor.reading.bytecode import read
from tenterhook.doctor.reading.functions import holder_of
from tenterhook.doctor.reading.program_text import evaluations

log: list[Any] = []


def rebinds(g):
    g = g * 2


def rebinds_and_prints(g):
    g = g.clamp(-1, 1)
    print(g.norm())


def drops_a_method(g):
    g.clamp(-1, 1)


def drops_arithmetic(g):
    g / 2


def drops_torch(g):
    torch.clamp(g, -1, 1)


def drops_functional(g):
    F.normalize(g)


def unused_name(g):
    new = g.mul(0.5)


def unused_tuple(m, gi, go):
    new = tuple(g * 2 for g in gi)


def unused_one_tuple(m, gi, go):
    new = (gi[0] * 0.5,)


def edited_copy(g):
    new = g.clone()
    new[0] = 0.0


def in_a_branch(g):
    if g.norm() > 1:
        g = g / g.norm()


LOST = (
    rebinds, rebinds_and_prints, drops_a_method, drops_arithmetic, drops_torch, drops_functional, unused_name,
    unused_tuple, unused_one_tuple, edited_copy, in_a_branch, functools.partial(rebinds),
)  # fmt: skip


def returns(g):
    return g * 2


def returns_in_a_branch(g):
    if g.norm() > 1:
        return g / g.norm()
    return None


def prints(g):
    print(g.clamp(0, 1), tuple(g.shape))


def keeps(g):
    log.append(g * 2)


def rebinds_and_keeps(g):
    g = g / 128
    log.append(g.norm())


def keeps_by_name(g):
    norm = g.norm()
    log.append(norm)


def detaches(g):
    g = g.detach().float()
    print(g.norm())


def saves(g):
    torch.save(g, "p")


def asserts(g):
    torch._assert(torch.isfinite(g).all(), "x")


def compares(g):
    torch.testing.assert_close(g, g)


def into_out(g):
    torch.clamp(g, -1, 1, out=g)


def in_place(g):
    g *= 2


def unpacks(g):
    rows, columns = g.shape
    log.append(columns)


def raises(g):
    if not g.isfinite().all():
        raise ValueError(g.norm())


KEPT = (
    returns, returns_in_a_branch, prints, keeps, rebinds_and_keeps, keeps_by_name, detaches, saves, asserts, compares,
    into_out, in_place, unpacks, raises, lambda g: g * 2,
)  # fmt: skip


@pytest.mark.parametrize("fn", LOST, ids=lambda f: getattr(f, "__name__", "partial"))
def test_what_is_made_and_thrown_away(fn: Callable[..., Any]):
    reading = read(fn)
    assert reading is not None and reading.lost is not None and not reading.returns


@pytest.mark.parametrize("fn", KEPT, ids=lambda f: f.__name__)
def test_what_is_returned_kept_or_only_looked_at(fn: Callable[..., Any]):
    reading = read(fn)
    assert reading is not None and reading.lost is None


class Observer:
    def __call__(self, grad: Tensor) -> None:
        log.append(grad.norm().item())

    def observe(self, module: Any, args: Any, out: Tensor) -> None:
        log.append(out.cpu())


def test_arguments_waits_and_limits():
    called, bound = read(Observer()), read(Observer().observe)
    assert called is not None and bound is not None
    assert (called.arguments, called.waits, called.limits) == (("grad",), ("item",), True)
    assert (bound.arguments, bound.waits, bound.limits) == (("module", "args", "out"), ("cpu",), False)
    assert read(print) is None


def test_who_holds_a_tensor():
    x = torch.ones(2, requires_grad=True) * 2

    def closed(grad: Tensor) -> Tensor:
        return grad * x

    assert holder_of(closed, x) == "x"
    assert holder_of(lambda grad, kept=x: grad * kept, x) == "kept"
    assert holder_of(functools.partial(torch.mul, x), x) == "argument 0"
    assert holder_of(lambda grad, kept=x.detach(): grad * kept, x) is None
    assert holder_of(functools.partial(closed), x) == "x"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("eval(name)", [1]), ("exec(open(path).read())", [1]), ("eval('1 + 1')", []), ("model.eval()", []),
        ("re.compile(x)", []), ("def eval(x): ...", []), ("x = (", []),
    ],
)  # fmt: skip
def test_text_that_is_run(line: str, found: list[int], tmp_path: Any):
    (tmp_path / "a.py").write_text(line)
    assert evaluations(str(tmp_path / "a.py")) == found
    assert evaluations(str(tmp_path / "nowhere.py")) == []
