"""Build the small models of the random programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

WIDTH = 3
BATCHES = tuple(torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(seed)) for seed in range(64))

Container = Literal["list", "sequential", "attributes"]
Kind = Literal["plain", "tanh", "norm"]


@dataclass(frozen=True)
class ModelSpec:
    """Describe a model: its blocks, how they are stored, and what is shared, tied or checkpointed."""

    container: Container = "list"
    blocks: tuple[Kind, ...] = ("plain",)
    shared: bool = False
    tied: bool = False
    checkpointed: int | None = None
    reentrant: bool = False
    input_grad: bool = False
    seed: int = 0
    dtype: torch.dtype = torch.float32

    def __str__(self) -> str:
        parts = [f"{self.container} of {'+'.join(self.blocks)}"]
        parts += ["shared module"] * self.shared + ["head.weight tied to the first weight"] * self.tied
        if self.checkpointed is not None:
            parts.append(f"block {self.checkpointed} checkpointed, use_reentrant={self.reentrant}")
        parts += ["the input requires grad"] * self.input_grad
        parts += ["double precision"] * (self.dtype is torch.float64)
        return ", ".join(parts)


def numbers(shape: torch.Size | tuple[int, ...], seed: int, dtype: torch.dtype) -> Tensor:
    """Return random numbers that depend on nothing but the seed. They have the same values in every dtype."""
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 0.5).to(dtype)


def linear(seed: int, dtype: torch.dtype) -> nn.Linear:
    """Return a linear layer whose values depend on nothing but the seed."""
    layer = nn.Linear(WIDTH, WIDTH)  # on the meta device, its own random numbers would take ten times as long
    layer.weight = nn.Parameter(numbers((WIDTH, WIDTH), seed, dtype))
    layer.bias = nn.Parameter(numbers((WIDTH,), seed + 1, dtype))
    return layer


class Block(nn.Module):
    """Has a linear layer with tanh, and for the kind "norm" a layer norm before it and a residual connection."""

    def __init__(self, kind: Kind, seed: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH, dtype=dtype) if kind == "norm" else None
        self.fc = linear(seed, dtype)
        self.act = nn.Tanh()

    def forward(self, x: Tensor) -> Tensor:
        if self.norm is None:
            return self.act(self.fc(x))
        return x + self.act(self.fc(self.norm(x)))


def build_block(kind: Kind, seed: int, dtype: torch.dtype) -> nn.Module:
    """Return a new block. A plain block is a linear layer itself."""
    return linear(seed, dtype) if kind == "plain" else Block(kind, seed, dtype)


def loss_of(out: Tensor) -> Tensor:
    """Return a loss whose gradient is bounded, so that no program diverges."""
    return out.square().log1p().mean()


class Net(nn.Module):
    """The model: blocks in a container, perhaps a shared module around them, and a head."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spec = spec
        blocks = [build_block(kind, spec.seed + 10 * i, spec.dtype) for i, kind in enumerate(spec.blocks)]
        self.order: list[str] = []
        self.made = 0
        if spec.container == "attributes":
            for block in blocks:
                self.insert(len(self.order), block)
        else:
            self.blocks = nn.ModuleList(blocks) if spec.container == "list" else nn.Sequential(*blocks)
        self.shared = linear(spec.seed + 100, spec.dtype) if spec.shared else None
        self.head = linear(spec.seed + 200, spec.dtype)
        #: False in passes in which the oracle runs the checkpointed block without a checkpoint
        self.uses_checkpoint = True
        #: the index of the block before which the forward pass fails, and the error
        self.fuse: int | None = None
        self.error: type[BaseException] = ArithmeticError
        if spec.tied:
            first = blocks[0].fc if isinstance(blocks[0], Block) else blocks[0]
            self.head.weight = first.weight

    # the blocks

    def insert(self, index: int, block: nn.Module) -> None:
        """Insert a block at an index, under a new name or with new numbers for the blocks after it."""
        if self.spec.container != "attributes":
            self.blocks.insert(index, block)
            return
        name = f"block{self.made}"
        self.made += 1
        setattr(self, name, block)
        self.order.insert(index, name)

    def remove(self, index: int) -> None:
        """Delete the block at an index."""
        if self.spec.container != "attributes":
            del self.blocks[index]
        else:
            delattr(self, self.order.pop(index))

    def all_blocks(self) -> list[nn.Module]:
        """Return the blocks in the order in which they run."""
        if self.spec.container == "attributes":
            return [getattr(self, name) for name in self.order]
        return list(self.blocks)

    # the computation

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)

    def loss(self, x: Tensor) -> Tensor:
        """Compute the loss without calling the root module."""
        return loss_of(self.body(x))

    def body(self, x: Tensor) -> Tensor:
        if self.shared is not None:
            x = self.shared(x)
        if self.spec.container == "sequential" and self.spec.checkpointed is None and self.fuse is None:
            x = self.blocks(x)
        else:
            x = self.run_blocks(x)
        if self.shared is not None:
            x = self.shared(x)
        return self.head(x)

    def run_blocks(self, x: Tensor) -> Tensor:
        blocks = self.all_blocks()
        for i, block in enumerate(blocks):
            if self.fuse is not None and i == self.fuse % len(blocks):
                raise self.error("the forward pass fails")
            checkpointed = self.spec.checkpointed if self.uses_checkpoint else None
            if checkpointed is not None and i == checkpointed % len(blocks):
                x = checkpoint(block, x, use_reentrant=self.spec.reentrant, preserve_rng_state=False)
            else:
                x = block(x)
        return x


def slots(model: nn.Module, kind: type[nn.Module] | tuple[type[nn.Module], ...]) -> list[tuple[nn.Module, str]]:
    """Return every place of a module of a kind: its parent and its name there, without the root."""
    return [(parent, name) for parent in model.modules() for name, child in parent.named_children()
            if isinstance(child, kind)]  # fmt: skip


def weights(model: nn.Module) -> list[tuple[nn.Module, str]]:
    """Return every place of a square weight: its module and its name there."""
    return [(module, "weight") for module in model.modules() if isinstance(module, nn.Linear)]


def walk(module: nn.Module, prefix: str = "") -> list[tuple[str, nn.Module]]:
    """Return every module under each of its names, with a dot after the name, as `named_modules` does but faster."""
    found = [(prefix, module)]
    for name, child in module._modules.items():
        if child is not None:
            found += walk(child, f"{prefix}{name}.")
    return found


def named_parameters(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return every parameter under each of its names, in the order of the model."""
    return [(prefix + name, parameter) for prefix, module in walk(model)
            for name, parameter in module._parameters.items() if parameter is not None]  # fmt: skip


def module_names(model: nn.Module) -> dict[nn.Module, list[str]]:
    """Return all names of every module. The root is named "."."""
    found: dict[nn.Module, list[str]] = {}
    for prefix, module in walk(model):
        found.setdefault(module, []).append(prefix[:-1] or ".")
    return found


def parameter_names(model: nn.Module) -> dict[nn.Parameter, list[str]]:
    """Return all names of every parameter, in the order of the model."""
    found: dict[nn.Parameter, list[str]] = {}
    for name, parameter in named_parameters(model):
        found.setdefault(parameter, []).append(name)
    return found


def owners(model: nn.Module) -> Iterator[tuple[nn.Parameter, nn.Module]]:
    """Yield every parameter with each module that has it as its own."""
    for _, module in walk(model):
        for parameter in module._parameters.values():
            if parameter is not None:
                yield parameter, module
