"""Test on a simulated device that hooks do not wait for it, and that they do what they do on the CPU.

`scripts/devices` runs all cases, and writes docs/devices.md. The tests run some of them, in a process of their own,
because PyTorch can register one device that is written in Python, and cannot remove it.
"""

from __future__ import annotations

from typing import Any

import pytest

from tenterhook.actions import BUILTIN
from tenterhook.actions.definition import TENSOR_POINTS
from tests.support.devices.cases import ACTIONS, Case, cases, copies_expected, name_of
from tests.support.devices.forms import FORMS
from tests.support.devices.page import PAGE, as_cases, cell, results, tables, with_tables
from tests.support.devices.planted import PLANTED
from tests.support.devices.transfers import Kind
from tests.support.earlier_torch import since
from tests.support.warm_python import warm_python

pytestmark = since(13, "registers a device that is written in Python in another way, or not at all")


@pytest.fixture(scope="module")
def some() -> list[Case]:
    return as_cases(results("--every", "25", python=warm_python()))


@pytest.fixture(scope="module")
def planted() -> list[dict[str, Any]]:
    return results("--planted", "item", "tensor", python=warm_python())


def test_every_builtin_action_is_run_at_every_point_where_it_is_allowed() -> None:
    names = set(BUILTIN.names()) - {"replicas"}  # which does nothing on one rank
    assert {name_of(action) for action in ACTIONS} == names
    allowed = {(name, point) for name in names for point in BUILTIN.get(name).at if point in TENSOR_POINTS}
    assert {(name_of(action), point) for action, point in cases()} == allowed


def test_an_action_does_not_wait_and_does_what_it_does_on_the_cpu(some: list[Case]) -> None:
    alone = [one for one in some if one.point]
    assert len(alone) >= 6
    for one in alone:
        assert (one.waits, one.differs) == (0, []), one
        assert one.copies == copies_expected(one.action, one.point) or one.action == 'capture(to="cpu")', one


def test_programs_wait_as_often_as_the_page_says(some: list[Case]) -> None:
    programs = {one.action: one for one in some if not one.point}
    assert programs.keys() == FORMS.keys()
    for name, one in programs.items():
        form = FORMS[name]
        assert (one.differs, one.copies) == ([], form.copies), one
        assert form.waits is None or one.waits == form.waits, one


def test_the_page_has_these_results(some: list[Case]) -> None:
    page = PAGE.read_text()
    rows = {line.split(" | ")[0].strip("| `"): line.strip("| ").split(" | ") for line in page.splitlines()}
    for one in some:
        if one.point:
            assert rows[one.action][1 + TENSOR_POINTS.index(one.point)] == cell(one), "run scripts/devices --write"
    assert f"{len(list(cases()))} pairs of an action and a point: 0 host reads, 0 blocking copies" in page
    assert tables(some).rpartition("\n\n")[2] in page, "run scripts/devices --write"


def test_the_tables_replace_those_of_the_page(some: list[Case]) -> None:
    page = "# Devices\n\n<!-- tables -->\nold\n<!-- end of tables -->\n\nThe end.\n"
    assert with_tables(page, some) == page.replace("\nold\n", f"\n\n{tables(some)}\n\n")


# -- the counter is seen to count --------------------------------------------------------------------------------------


def check_planted(found: list[dict[str, Any]], names: list[str]) -> None:
    assert [(one["planted"], one["point"]) for one in found] == [(n, p) for n in names for p in ("value", "value_grad")]
    for one in found:
        for step in one["steps"]:
            ((kind, thread, place),) = step
            assert kind == one["kind"] == PLANTED[one["planted"]][0]
            assert (thread == "MainThread") == (one["point"] == "value")
            assert place.startswith("rig/points/calling.py")


def test_a_read_and_a_blocking_copy_in_an_action_are_counted(planted: list[dict[str, Any]]) -> None:
    """Test both in the main thread, and in the thread of the device in which autograd calls hooks."""
    assert {PLANTED[name][0] for name in ("item", "tensor")} == {Kind.READ, Kind.TO_DEVICE}
    check_planted(planted[1:], ["item", "tensor"])


def test_the_device_refuses_tensors_of_the_host_and_delays_copies(planted: list[dict[str, Any]]) -> None:
    rules = planted[0]
    assert rules["mixed"] == "aten.add.Tensor: all tensors must be on one device, but found simulated:0 and cpu"
    assert (rules["early"], rules["arrived"]) == (True, [1.0, 1.0, 1.0])


@pytest.mark.programs
def test_every_kind_of_transfer_is_counted() -> None:
    check_planted(results("--planted", python=warm_python())[1:], list(PLANTED))
