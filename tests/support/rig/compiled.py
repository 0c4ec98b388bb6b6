"""Defines the columns of the matrix under torch.compile, each compared with the same training without it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.support.leftovers import clear_compiled
from tests.support.rig import regimes
from tests.support.rig.by_hand import Hand
from tests.support.rig.regimes import Net, Regime


class Block(nn.Module):
    call_mid = Net.call_mid

    def __init__(self) -> None:
        super().__init__()
        self.mid: nn.Module = nn.Linear(4, 4)
        self.hand = Hand(None)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.call_mid(x))


class InBlocks(Regime):
    """Has two blocks of one class. The hooks are on `mid` of the second block."""

    prefix = "blocks.1."

    class net(nn.Module):  # noqa: N801
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([Block(), Block()])
            self.last = nn.Linear(4, 4)

        @property
        def mid(self) -> nn.Module:
            return self.blocks[1].mid

        @property
        def hand(self) -> Hand:
            return self.blocks[1].hand

        @hand.setter
        def hand(self, hand: Hand) -> None:
            self.blocks[1].hand = hand

        def run(self, block: nn.Module, x: Tensor) -> Tensor:
            return block(x)

        def forward(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                x = self.run(block, x)
            return self.last(x)


class InCheckpoints(InBlocks):
    class net(InBlocks.net):  # noqa: N801
        def run(self, block: nn.Module, x: Tensor) -> Tensor:
            return checkpoint(block, x, use_reentrant=False)


def whole(eager: type[Regime], **options: Any) -> type[Regime]:
    """Return a regime that attaches to and trains `torch.compile(model)`."""

    class Compiled(eager):  # type: ignore[misc, valid-type]
        reference = eager
        close = tolerance(options["backend"])

        def wrapped(self, model: nn.Module) -> nn.Module:
            clear_compiled()
            return torch.compile(model, **options)

    return Compiled


def by_block(eager: type[Regime], **options: Any) -> type[Regime]:
    """Return a regime that calls `block.compile()` on each block. The model itself is not compiled."""

    class Compiled(eager):  # type: ignore[misc, valid-type]
        reference = eager
        close = tolerance(options["backend"])

        def wrapped(self, model: Any) -> nn.Module:
            clear_compiled()
            for block in model.blocks:
                block.compile(**options)
            return model

    return Compiled


def tolerance(backend: str) -> float:
    """Return the allowed difference. Kernels of inductor sum in another order; aot_eager runs PyTorch's own kernels."""
    return 1e-5 if backend == "inductor" else 0.0


COMPILED: dict[str, type[Regime]] = {
    "torch.compile(model)": whole(regimes.Eager, backend="inductor"),
    "torch.compile(model), aot_eager": whole(regimes.Eager, backend="aot_eager"),
    "torch.compile(model, fullgraph=True)": whole(regimes.Eager, backend="inductor", fullgraph=True),
    "block.compile()": by_block(InBlocks, backend="inductor", fullgraph=True),
    "block.compile(), aot_eager": by_block(InBlocks, backend="aot_eager", fullgraph=True),
    "compiled checkpoints": whole(InCheckpoints, backend="inductor", fullgraph=True),
    "compiled checkpoints, reentrant": whole(regimes.CheckpointReentrant, backend="aot_eager", fullgraph=True),
    "checkpoints of compiled blocks": by_block(InCheckpoints, backend="inductor", fullgraph=True),
}

#: the other regimes, compiled; without create_graph, because AOTAutograd does not support double backward
COMPILED |= {
    f"compiled: {name}": whole(regime, backend="aot_eager", fullgraph=True)
    for name, regime in regimes.REGIMES.items()
    if name not in ("eager", "create_graph") and not name.startswith("checkpoint")
}
