"""Check that a program sees the same hooks with and without an exam."""

from __future__ import annotations

import sys
import threading
import warnings

import pytest
import torch
from torch import nn

import tenterhook as th
from tenterhook.doctor.patch.proxy import HookProxy
from tests.support.doctor.visible import story
from tests.support.slices import sliced

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


@pytest.mark.parametrize("seed", sliced(range(60), 3))
def test_a_program_sees_the_same_hooks_with_and_without_an_exam(seed):
    bare = story(seed)
    with th.examine():
        examined = story(seed)
    assert len(bare) == len(examined)
    for before, after in zip(bare, examined, strict=True):
        assert before == after
    assert story(seed) == bare


def test_profile_and_trace_functions_are_as_before():
    def look() -> list[object]:
        model = nn.Linear(1, 1)
        model.register_forward_hook(lambda *args: None)
        with pytest.raises(ZeroDivisionError):
            model.register_forward_hook(lambda *args: 1 / 0)
            model(torch.ones(1))
        return [sys.gettrace(), threading.gettrace()]

    before = [*look(), sys.getprofile(), threading.getprofile()]
    with th.examine():
        assert look() == before[:2]
    assert [*look(), sys.getprofile(), threading.getprofile()] == before


def test_a_hook_that_is_not_written_in_python_has_a_stand_in_and_is_watched():
    shapes: list[object] = []
    with th.examine() as exam:
        model = nn.Linear(1, 1)
        model.weight.register_hook(shapes.append)
        model(torch.ones(1)).sum().backward()
        (inside,) = model.weight._backward_hooks.values()
        assert type(inside) is HookProxy and inside == shapes.append and isinstance(inside, type(shapes.append))
    assert [hook.fired for hook in exam.hooks] == [1]
    assert list(model.weight._backward_hooks.values()) == [shapes.append]
    assert type(next(iter(model.weight._backward_hooks.values()))) is type(shapes.append)


def test_hooks_are_watched_with_stand_ins_if_the_program_is_profiled():
    calls = []
    sys.setprofile(lambda *args: calls.append(args[1]))
    try:
        with th.examine() as exam, warnings.catch_warnings():
            model = nn.Linear(1, 1)
            model.weight.register_hook(lambda grad: None)
            model(torch.ones(1)).sum().backward()
    finally:
        sys.setprofile(None)
    assert [hook.fired for hook in exam.hooks] == [1]
    assert calls
