"""Test that hooks which fire while a CUDA graph is captured are reported.

No GPU is needed: the tests call the functions that torch calls when a capture begins and ends.
"""

from __future__ import annotations

import gc
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import nn
from torch.cuda import graphs
from torch.utils.hooks import RemovableHandle

import tenterhook as th

Capture = Callable[[], object]
HAS_HOOKS = hasattr(graphs, "register_graph_capture_start_hook")


@pytest.fixture(
    params=[
        "stand-in",
        pytest.param(
            "torch",
            marks=pytest.mark.skipif(not HAS_HOOKS, reason="torch before 2.14 does not tell when a graph is captured"),
        ),
    ]
)
def capture(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Capture:
    """Return a context manager in which a graph seems to be captured, with torch's own functions or with others."""
    if request.param == "torch":
        registries = [graphs._global_capture_start_hooks, graphs._global_capture_end_hooks]
    else:
        registries = [OrderedDict(), OrderedDict()]
        for name, registry in zip(("start", "end"), registries, strict=True):

            def register(fn: Callable[[object], None], registry: dict[int, object] = registry) -> RemovableHandle:
                handle = RemovableHandle(registry)
                registry[handle.id] = fn
                return handle

            monkeypatch.setattr(graphs, f"register_graph_capture_{name}_hook", register, raising=False)

    @contextmanager
    def capturing() -> Iterator[list[OrderedDict[int, Callable[[object], None]]]]:
        for call in list(registries[0].values()):
            call(None)
        yield registries
        for call in list(registries[1].values()):
            call(None)

    return capturing


def build() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()


PLAN = [
    th.Hook("acts", on="1", at="output", do=th.stats()),
    th.Hook("half", on="0.*", at="grad", do=th.scale(0.5)),
    th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(1.0)),
]


def test_hooks_that_were_captured_are_reported(capture: Capture) -> None:
    model, optimizer = build()
    rig = th.attach(model, PLAN, optimizer=optimizer)
    step(model, optimizer)
    assert not rig.imbalances
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with capture():
            model(torch.ones(1, 4)).sum().backward()
        with capture():
            model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    found = {one.hook: one for one in rig.imbalances}
    assert found.keys() == {"acts", "half"}, "clip fired outside the capture"
    assert {one.code for one in found.values()} == {"TH710"}
    assert "when the graph is replayed, it measures nothing" in found["acts"].cause
    assert "its kernels run as they were captured" in found["half"].cause
    assert found["half"].targets == {"0.weight", "0.bias"}
    said = [str(one.message) for one in caught]
    assert [one.partition(":")[0] for one in said] == ["tenterhook TH710"] * 2, "each hook is reported once"
    assert th.check(rig).codes[0] == "TH710"


def test_a_capture_of_other_code_is_not_reported(capture: Capture) -> None:
    model, optimizer = build()
    rig = th.attach(model, PLAN, optimizer=optimizer)
    step(model, optimizer)
    with capture():
        torch.ones(3).sum()
    step(model, optimizer)
    assert not rig.imbalances


def test_a_rig_stops_listening_when_it_is_detached_or_freed(capture: Capture) -> None:
    model, optimizer = build()
    with capture() as registries:
        before = [len(one) for one in registries]
    rig = th.attach(model, PLAN, optimizer=optimizer)
    with capture() as registries:
        assert [len(one) for one in registries] == [count + 1 for count in before]
    rig.detach()
    with capture() as registries:
        assert [len(one) for one in registries] == before
    rig = th.attach(model, PLAN, optimizer=optimizer)
    freed = weakref.ref(rig)
    del rig, model, optimizer
    gc.collect()
    assert freed() is None, "torch's registry must not keep a model"
    with capture() as registries:
        assert [len(one) for one in registries] == before
