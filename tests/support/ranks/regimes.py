"""Define the regimes of the matrix on several ranks, each with the same training written by hand on one process."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

from tests.support.rig.by_hand import Hand
from tests.support.rig.compiled import InBlocks
from tests.support.rig.regimes import Net

STEPS = 3
#: the points at which a row-parallel module has whole tensors; its inputs and weights are parts
WHOLE = ("output", "grad_output", "value", "value_grad")


class Regime:
    """Train plain DDP replicas, each with its own batch."""

    ranks = 2
    options: dict[str, Any] = {}
    #: the path of `mid`
    prefix = ""
    #: whether this rank has the hooked module
    here = True
    #: the number of backwards in a step; only the last one is reduced
    micro = 1
    #: the relative tolerance, since sums over ranks have another order than on one process
    close = 1e-12

    def build(self) -> Net:
        torch.manual_seed(0)
        return Net().double()

    def spread(self, model: Net) -> nn.Module:
        return nn.parallel.DistributedDataParallel(model, **self.options)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    @property
    def batches(self) -> int:
        """Return the number of different batches in a step."""
        return self.ranks

    @property
    def mine(self) -> int:
        """Return the number of this rank's batch."""
        return dist.get_rank()

    def batch(self, step: int, micro: int, by: int) -> Tensor:
        seed = 1000 * step + 10 * micro + by
        return torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))

    def unsynced(self, model: Any, micro: int) -> Any:
        return model.no_sync() if micro + 1 < self.micro else nullcontext()

    def train(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for step in range(STEPS):
            optimizer.zero_grad()
            for micro in range(self.micro):
                with self.unsynced(model, micro):
                    (model(self.batch(step, micro, self.mine)).square().mean() / self.micro).backward()
            optimizer.step()
        model.load_state_dict(model.state_dict())

    def by_hand(self, hand: Hand) -> Net:
        """Train on one process: run the batches of all ranks one after the other, and average the gradients."""
        model = self.build()
        optimizer = self.optimizer(model)
        model.hand = hand
        hands = [hand if by == self.mine else Hand(hand.point, hand.change) for by in range(self.batches)]
        hand.on_state(model.mid)
        for step in range(STEPS):
            sums: list[Tensor] = []
            for by, one in enumerate(hands):
                grads = self.gradients(model, one, step, by)
                sums = [s + g for s, g in zip(sums, grads, strict=True)] if sums else grads
            for p, total in zip(model.parameters(), sums, strict=True):
                p.grad = total / self.batches
            hand.final(model.mid.weight)
            hand.step(model.mid.weight, optimizer, optimizer.step)
        hand.again_on_parameter(model.mid.weight)
        model.load_state_dict(model.state_dict())
        return model

    def gradients(self, model: Net, hand: Hand, step: int, by: int) -> list[Tensor]:
        """Return the gradients of one rank's batches."""
        model.hand = hand
        hand.again_on_parameter(model.mid.weight)
        model.zero_grad()
        for micro in range(self.micro):
            (model(self.batch(step, micro, by)).square().mean() / self.micro).backward()
        return [p.grad.clone() for p in model.parameters()]

    def part(self, whole: Tensor, point: str) -> Tensor:
        """Return this rank's part of the tensor that one process has at this point."""
        return whole

    def name_of(self, parameter: str) -> str:
        """Return the name that a parameter has on one process."""
        return parameter.removeprefix("_orig_mod.")


class Ddp(Regime):
    pass


class DdpNoSync(Regime):
    micro = 2


class DdpStatic(Regime):
    options = {"static_graph": True}


class DdpUnused(Regime):
    options = {"find_unused_parameters": True}


class DdpBucketView(Regime):
    options = {"gradient_as_bucket_view": True}


class DdpBucketViewNoSync(Regime):
    options = {"gradient_as_bucket_view": True}
    micro = 2


class DdpCompiled(Regime):
    """Train `torch.compile(DDP(model))`."""

    backend = "aot_eager"

    def spread(self, model: Net) -> nn.Module:
        torch._dynamo.reset()
        return torch.compile(super().spread(model), backend=self.backend)


class DdpOfCompiled(Regime):
    """Train `DDP(torch.compile(model))`."""

    def spread(self, model: Net) -> nn.Module:
        torch._dynamo.reset()
        return super().spread(torch.compile(model, backend="inductor", fullgraph=True))


class Fsdp2(Regime):
    mesh: Any = None

    def spread(self, model: Net) -> nn.Module:
        from torch.distributed.fsdp import fully_shard

        for module in (model.first, model.mid, model.last):
            fully_shard(module, **self.options)
        return fully_shard(model, **self.options)

    def unsynced(self, model: Any, micro: int) -> Any:
        model.set_requires_gradient_sync(micro + 1 == self.micro)
        return nullcontext()

    def part(self, whole: Tensor, point: str) -> Tensor:
        return whole.chunk(self.ranks)[dist.get_rank()] if point in ("grad_final", "update") else whole


class Fsdp2Whole(Fsdp2):
    """Shard the whole model as one group."""

    def spread(self, model: Net) -> nn.Module:
        from torch.distributed.fsdp import fully_shard

        return fully_shard(model)


class Fsdp2Accumulated(Fsdp2):
    micro = 2


class Fsdp2Offloaded(Fsdp2):
    @property
    def options(self) -> dict[str, Any]:  # type: ignore[override]
        from torch.distributed.fsdp import CPUOffloadPolicy

        return {"offload_policy": CPUOffloadPolicy(pin_memory=False)}


class Fsdp2Compiled(Fsdp2):
    """Compile each block, then shard it."""

    prefix = InBlocks.prefix
    backend = "inductor"

    def build(self) -> Net:
        torch.manual_seed(0)
        return InBlocks.net().double()

    def spread(self, model: Any) -> nn.Module:
        from torch.distributed.fsdp import fully_shard

        torch._dynamo.reset()
        for block in model.blocks:
            block.compile(backend=self.backend, fullgraph=True)
            fully_shard(block, **self.options)
        return fully_shard(model, **self.options)


class Fsdp2CompiledAccumulated(Fsdp2Compiled):
    backend = "aot_eager"
    micro = 2


class Fsdp2Mixed(Fsdp2):
    """Compute in bfloat16, and reduce and step in single precision."""

    close = 1e-6

    @property
    def options(self) -> dict[str, Any]:  # type: ignore[override]
        from torch.distributed.fsdp import MixedPrecisionPolicy

        return {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)}

    def build(self) -> Net:
        return super().build().float()

    def batch(self, step: int, micro: int, by: int) -> Tensor:
        return super().batch(step, micro, by).float()

    def gradients(self, model: Net, hand: Hand, step: int, by: int) -> list[Tensor]:
        low = copy.deepcopy(model).bfloat16()
        low.hand = hand
        hand.again_on_parameter(low.mid.weight)
        low(self.batch(step, 0, by).bfloat16()).square().mean().backward()
        return [p.grad.float() for p in low.parameters()]


class TensorParallel(Regime):
    """Split `first` by columns and `mid` by rows."""

    batches = 1  # type: ignore[assignment]
    mine = 0  # type: ignore[assignment]

    def spread(self, model: Net) -> nn.Module:
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        mesh = init_device_mesh("cpu", (self.ranks,))
        return parallelize_module(model, mesh, {"first": ColwiseParallel(), "mid": RowwiseParallel()})

    def part(self, whole: Tensor, point: str) -> Tensor:
        return whole if point in WHOLE else whole.chunk(self.ranks, -1)[dist.get_rank()]


class Fsdp2TensorParallel(Regime):
    ranks = 4

    def spread(self, model: Net) -> nn.Module:
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        parallelize_module(model, mesh["tp"], {"first": ColwiseParallel(), "mid": RowwiseParallel()})
        for module in (model.first, model.mid, model.last):
            fully_shard(module, mesh=mesh["dp"])
        return fully_shard(model, mesh=mesh["dp"])

    @property
    def batches(self) -> int:
        return 2

    @property
    def mine(self) -> int:
        return dist.get_rank() // 2

    def part(self, whole: Tensor, point: str) -> Tensor:
        if point in WHOLE:
            return whole
        whole = whole.chunk(2, -1)[dist.get_rank() % 2]
        return whole.chunk(2)[dist.get_rank() // 2] if point in ("grad_final", "update") else whole


class Front(Net):
    """Implement the pipeline stage that has `mid`."""

    def __init__(self, whole: Net) -> None:
        super().__init__()
        self.first, self.mid = whole.first, whole.mid
        del self.last

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.call_mid(torch.tanh(self.first(x))))


class Back(nn.Module):
    def __init__(self, whole: Net) -> None:
        super().__init__()
        self.last = whole.last

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x)


class GPipe(Regime):
    """Run two pipeline stages with two microbatches."""

    batches = 1  # type: ignore[assignment]
    mine = 0  # type: ignore[assignment]
    schedule = "ScheduleGPipe"

    @property
    def here(self) -> bool:
        return dist.get_rank() == 0

    def spread(self, model: Net) -> nn.Module:
        return Front(model) if dist.get_rank() == 0 else Back(model)

    def train(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        from torch.distributed import pipelining

        stage = pipelining.PipelineStage(model, dist.get_rank(), 2, torch.device("cpu"))
        schedule = getattr(pipelining, self.schedule)(stage, 2, loss_fn=lambda out, _: out.square().mean())
        for step in range(STEPS):
            optimizer.zero_grad()
            x = torch.cat([self.batch(step, micro, 0) for micro in range(2)])
            if self.here:
                schedule.step(x)
            else:
                schedule.step(target=x)
            optimizer.step()
        model.load_state_dict(model.state_dict())

    def gradients(self, model: Net, hand: Hand, step: int, by: int) -> list[Tensor]:
        model.hand = hand
        hand.again_on_parameter(model.mid.weight)
        model.zero_grad()
        for micro in range(2):
            model(self.batch(step, micro, 0)).square().mean().backward()
        return [p.grad / 2 for p in model.parameters()]


class OneForwardOneBackward(GPipe):
    schedule = "Schedule1F1B"


class Hsdp(Fsdp2):
    """Train with shards on two ranks, and copies of these shards on two other ranks."""

    ranks = 4

    @property
    def options(self) -> dict[str, Any]:  # type: ignore[override]
        return {"mesh": init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "shards"))}

    def part(self, whole: Tensor, point: str) -> Tensor:
        return whole.chunk(2)[dist.get_rank() % 2] if point in ("grad_final", "update") else whole


class _AttachedFirst(Regime):
    """Distribute the model after the hooks were attached, and give the optimizer the new parameters."""

    def spread(self, model: Net) -> nn.Module:
        return model

    def train(self, model: Any, optimizer: torch.optim.Optimizer) -> None:
        distributed = super().spread(model)
        assert distributed is model
        optimizer.param_groups[0]["params"] = list(model.parameters())
        super().train(model, optimizer)


class Fsdp2AttachedFirst(_AttachedFirst, Fsdp2):
    pass


class TensorParallelAttachedFirst(_AttachedFirst, TensorParallel):
    pass


class TwoGroups(Regime):
    """Train one model on ranks 0 and 1, and another one on ranks 2 and 3."""

    ranks = 4
    batches = 2  # type: ignore[assignment]

    @property
    def mine(self) -> int:
        return dist.get_rank() % 2

    def build(self) -> Net:
        torch.manual_seed(dist.get_rank() // 2)
        return Net().double()

    def spread(self, model: Net) -> nn.Module:
        groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        return nn.parallel.DistributedDataParallel(model, process_group=groups[dist.get_rank() // 2])


class TwoMeshes(TwoGroups, Fsdp2):
    @property
    def options(self) -> dict[str, Any]:  # type: ignore[override]
        return {"mesh": init_device_mesh("cpu", (2, 2), mesh_dim_names=("role", "dp"))["dp"]}

    def spread(self, model: Net) -> nn.Module:
        return Fsdp2.spread(self, model)

    def part(self, whole: Tensor, point: str) -> Tensor:
        return whole.chunk(2)[self.mine] if point in ("grad_final", "update") else whole


class Middle(Net):
    """Implement the pipeline stage that has only `mid`."""

    def __init__(self, whole: Net) -> None:
        super().__init__()
        self.mid = whole.mid
        del self.first, self.last

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.call_mid(torch.tanh(x)))


class Passing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 1


class Interleaved(GPipe):
    """Run four pipeline stages on two ranks. Each rank keeps its stages in a container."""

    prefix = "1."

    @property
    def here(self) -> bool:
        return dist.get_rank() == 1

    def spread(self, model: Net) -> nn.Module:
        stages = [model.first, Middle(model), Passing(), model.last]
        return nn.ModuleDict({str(i): stages[i] for i in (dist.get_rank(), dist.get_rank() + 2)})

    def train(self, model: Any, optimizer: torch.optim.Optimizer) -> None:
        from torch.distributed import pipelining

        stages = [pipelining.PipelineStage(one, int(i), 4, torch.device("cpu")) for i, one in model.items()]
        schedule = pipelining.ScheduleInterleaved1F1B(stages, 2, loss_fn=lambda out, _: out.square().mean())
        for step in range(STEPS):
            optimizer.zero_grad()
            x = torch.cat([self.batch(step, micro, 0) for micro in range(2)])
            if self.here:
                schedule.step(target=x)
            else:
                schedule.step(x)
            optimizer.step()
        model.load_state_dict(model.state_dict())

    def name_of(self, parameter: str) -> str:
        stage, _, name = parameter.partition(".")
        return {"0": f"first.{name}", "1": name, "3": f"last.{name}"}[stage]


REGIMES: dict[str, type[Regime]] = {
    "DDP": Ddp,
    "DDP, no_sync": DdpNoSync,
    "DDP, static_graph": DdpStatic,
    "DDP, find_unused_parameters": DdpUnused,
    "DDP, bucket views": DdpBucketView,
    "DDP, bucket views, no_sync": DdpBucketViewNoSync,
    "FSDP2, per block": Fsdp2,
    "FSDP2, one group": Fsdp2Whole,
    "FSDP2, sync off and on": Fsdp2Accumulated,
    "FSDP2, CPU offload": Fsdp2Offloaded,
    "FSDP2, mixed precision": Fsdp2Mixed,
    "torch.compile(DDP(model))": DdpCompiled,
    "DDP(torch.compile(model))": DdpOfCompiled,
    "FSDP2, block.compile()": Fsdp2Compiled,
    "FSDP2, block.compile(), sync off and on": Fsdp2CompiledAccumulated,
    "TP": TensorParallel,
    "FSDP2 x TP": Fsdp2TensorParallel,
    "PP, GPipe": GPipe,
    "PP, 1F1B": OneForwardOneBackward,
    "PP, interleaved 1F1B, stages in a container": Interleaved,
    "HSDP": Hsdp,
    "FSDP2, attached before": Fsdp2AttachedFirst,
    "TP, attached before": TensorParallelAttachedFirst,
    "DDP, two models on two groups": TwoGroups,
    "FSDP2, two models on two meshes": TwoMeshes,
}
