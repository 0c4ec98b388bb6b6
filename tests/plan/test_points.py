import re

import pytest
import torch

import tenterhook
from tenterhook.plan import NOT_OFFERED, POINTS

TABLE = {
    "input": (("module",), True),
    "output": (("module",), True),
    "grad_output": (("module",), True),
    "grad_input": (("module",), True),
    "grad": (("parameter",), True),
    "grad_accumulated": (("parameter",), True),
    "grad_final": (("parameter",), True),
    "update": (("parameter",), False),
    "value": (("tap",), True),
    "value_grad": (("tap",), True),
    "step_pre": (("optimizer",), False),
    "step_post": (("optimizer",), False),
    "save_pre": (("module", "optimizer"), False),
    "save_post": (("module", "optimizer"), False),
    "load_pre": (("module", "optimizer"), False),
    "load_post": (("module", "optimizer"), False),
}
SIDES = {
    "forward": {"input", "output", "value"},
    "backward": {"grad_output", "grad_input", "grad", "grad_accumulated", "value_grad"},
    "step": {"grad_final", "update", "step_pre", "step_post"},
    "state": {"save_pre", "save_post", "load_pre", "load_post"},
}
OWNERS = {
    "Module": torch.nn.Module,
    "Tensor": torch.Tensor,
    "Optimizer": torch.optim.Optimizer,
    "Node": torch.autograd.graph.Node,
    "graph": torch.autograd.graph,
    "DistributedDataParallel": torch.nn.parallel.DistributedDataParallel,
    "tenterhook": tenterhook,
}
KINDS = {"module": torch.nn.Module, "optimizer": torch.optim.Optimizer}


def functions(point):
    """Yield owner and name of each function that provides the point.

    A function without an owner belongs to each kind of target.
    """
    owners = [KINDS[kind] for kind in point.on if kind in KINDS]
    for stated in point.uses.split(" + "):
        owner, dot, name = stated.rpartition(".")
        owners = [OWNERS[owner]] if dot else owners
        assert owners, stated
        yield from ((o, name) for o in owners)


def test_the_table_is_the_design():
    assert [(p.name, p.on, p.modifies) for p in POINTS.values()] == [(n, on, m) for n, (on, m) in TABLE.items()]
    assert list(POINTS) == list(TABLE)


def test_every_point_is_on_its_side():
    sides = {side: {p.name for p in POINTS.values() if p.side == side} for side in SIDES}
    assert sides == SIDES


def test_every_point_says_its_signal():
    assert all(p.signal for p in POINTS.values())
    assert len({p.signal for p in POINTS.values()}) == len(POINTS)


@pytest.mark.parametrize("name", POINTS)
def test_what_a_point_uses_exists(name):
    found = list(functions(POINTS[name]))
    assert found
    for owner, function in found:
        assert callable(getattr(owner, function)), (owner, function)


def test_what_is_not_offered_exists_and_has_a_reason():
    for stated, why in NOT_OFFERED.items():
        assert len(why) > 10, stated
        for owner, function in re.findall(r"(\w+)\.(\w+)", stated):
            assert callable(getattr(OWNERS[owner], function)), stated


def test_a_reason_sends_to_points_that_exist():
    sent_to = re.findall(r"use (\w+)", " ".join(NOT_OFFERED.values()))
    assert len(sent_to) >= 3
    assert set(sent_to) <= set(POINTS)


def test_nothing_is_both_offered_and_not():
    offered = {f for p in POINTS.values() for f in p.uses.split(" + ")}
    assert offered.isdisjoint(NOT_OFFERED)


@pytest.mark.parametrize("owner", ["Module", "Tensor", "Optimizer"])
def test_every_register_function_of_torch_is_offered_or_not_with_a_reason(owner):
    known = {(o, name) for p in POINTS.values() for o, name in functions(p)}
    known |= {(OWNERS[o], name) for o, name in re.findall(r"(\w+)\.(\w+)", " ".join(NOT_OFFERED)) if o in OWNERS}
    there = {(OWNERS[owner], n) for n in dir(OWNERS[owner]) if n.startswith("register_") and n.endswith("hook")}
    assert there
    assert there <= known
