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
}
