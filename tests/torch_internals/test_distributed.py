"""Check the private attributes of FSDP2, pipelines and the process group. A test fails when torch changes them."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

from tenterhook import torch_internals as private


@pytest.fixture
def one_process(tmp_path):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_the_store_of_the_process_group(one_process):
    private.default_store().set("key", "value")
    assert private.default_store().get("key") == b"value"


def test_a_reduction_in_another_dtype_is_told(one_process):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    for policy, apart in (
        (MixedPrecisionPolicy(), False),
        (MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16), False),
        (MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32), True),
    ):
        model = nn.Linear(2, 2)
        assert not private.reduces_in_other_dtype(model)
        assert private.reduces_in_other_dtype(fully_shard(model, mp_policy=policy)) is apart


def test_a_pipeline_that_infers_shapes_is_told(one_process):
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    class Looks(nn.Module):
        def forward(self, x):
            told.append(private.infers_shapes())
            return x * 1.0

    told: list[bool] = []
    stage = PipelineStage(Looks(), 0, 1, torch.device("cpu"))
    ScheduleGPipe(stage, n_microbatches=1).step(torch.ones(2, 2))
    assert told == [True, False]


def test_the_groups_of_fsdp_know_their_shards_and_whether_they_reduce(one_process):
    from torch.distributed.fsdp import fully_shard

    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    fully_shard(model[0])
    fully_shard(model)
    (outer, rest), (inner, first) = private.shard_groups(model)
    assert [id(p) for p in first] == [id(p) for p in model[0].parameters()]
    assert [id(p) for p in rest] == [id(p) for p in model[1].parameters()]
    model[0].set_requires_gradient_sync(False)
    assert (private.syncs(outer), private.syncs(inner)) == (True, False)


def test_schedules_are_looked_for_beside_dead_proxies():
    pytest.importorskip("torch.distributed.pipelining")

    class Gone:
        pass

    gone = Gone()
    proxy = weakref.proxy(gone)
    assert any(one is proxy for one in gc.get_objects())
    del gone
    assert not private.splits_backward(nn.Linear(1, 1))
