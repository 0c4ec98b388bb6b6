"""Checks which program or library owns a hook."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel.distributed import DistributedDataParallel
from torch.nn.utils import prune

import tenterhook as th
from tenterhook.torch_internals.code_owner import is_ours, is_users, owner_of
from tests.support.needs import needs


class Mine:
    def __call__(self, *args: object) -> None: ...


def mine(*args: object) -> None: ...


@pytest.mark.parametrize(
    ("fn", "owner"),
    [
        (mine, "the program"),
        (Mine(), "the program"),
        (Mine().__call__, "the program"),
        (functools.partial(mine, 1), "the program"),
        (lambda grad: grad, "the program"),
        (DistributedDataParallel.forward, "DDP"),
        (FullyShardedDataParallel.forward, "FSDP"),
        (nn.Linear.forward, "torch"),
        (th.attach, "tenterhook"),
        (print, "builtins"),
    ],
)
def test_the_owner_of_a_function(fn: object, owner: str):
    assert owner_of(fn) == owner


def test_the_owner_of_a_function_of_accelerate():
    hooks = needs("accelerate.hooks")
    assert owner_of(hooks.add_hook_to_module) == owner_of(hooks.ModelHook().pre_forward) == "accelerate"


def test_files():
    assert is_users(__file__) and is_users("<stdin>") and not is_users(torch.__file__) and not is_users(th.__file__)
    assert is_ours(th.__file__) and not is_ours(__file__)


def test_the_inventory_names_owners():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    model[0].weight.register_hook(mine)
    prune.random_unstructured(model[1], "weight", amount=0.5)
    with th.attach(model, th.Hook("h", on="0", at="output", do=th.stats())):
        found = {(f.target, f.owner) for f in th.inventory(model)}
        shown = repr(th.inventory(model))
    assert {("0.weight", "the program"), ("1", "prune"), ("0", "tenterhook")} <= found
    assert shown.splitlines()[0].split() == ["target", "registered", "by", "hook", "owner", "place"]
