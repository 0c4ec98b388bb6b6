"""Train a tiny Llama with two clips and statistics, on one process, with DDP, with FSDP2, or with FSDP2 and TP.

python -m torch.distributed.run ... -m tests.support.ranks.llama REGIME STEPS    # prints the recorded numbers as JSON
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu

import tenterhook as th
from tests.support.ranks.launch import leave

WIDTH, HEADS, LAYERS, WORDS, LENGTH, BATCH = 32, 4, 2, 64, 16, 8
LIMIT, Z, WARMUP, ALPHA = 0.5, 1.0, 10, 0.97
RANKS = {"single": 1, "DDP": 2, "FSDP2": 2, "FSDP2 x TP": 4}


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = Norm(), Norm()
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.w1, self.w3 = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.w2 = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.attention_norm(x)
        q, k, v = (w(y).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        x = x + self.wo(scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        y = self.mlp_norm(x)
        return x + self.w2(silu(self.w1(y)) * self.w3(y))


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = Norm(), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def spread(model: Llama, regime: str) -> nn.Module:
    if regime == "single":
        return model
    if regime == "DDP":
        return nn.parallel.DistributedDataParallel(model)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh: Any = None
    if regime == "FSDP2 x TP":
        both = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        mesh, columns, rows = both["dp"], ColwiseParallel(), RowwiseParallel()
        plan = {"wq": columns, "wk": columns, "wv": columns, "wo": rows, "w1": columns, "w3": columns, "w2": rows}
        for layer in model.layers:
            parallelize_module(layer, both["tp"], plan)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def build(regime: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = spread(Llama().double(), regime)
    return model, torch.optim.AdamW(model.parameters(), lr=3e-3)


def backward(model: nn.Module, regime: str, step: int) -> None:
    """Run the backward on this rank's part of the batch. The whole batch is the same in every regime."""
    draw = torch.Generator().manual_seed(step)
    tokens = torch.randint(WORDS, (BATCH, 1), generator=draw) + torch.arange(LENGTH + 1)
    tokens = (tokens * tokens) % WORDS
    parts, mine = {"single": (1, 0)}.get(regime) or (2, dist.get_rank() * 2 // dist.get_world_size())
    tokens = tokens.chunk(parts)[mine]
    logits = model(tokens[:, :-1])
    cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()


def plan() -> th.Plan:
    return th.Plan([
        th.Hook("before", on="**", at="grad_final", do=th.stats()),
        th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(LIMIT, over="hook")),
        th.Hook("z", on="**", at="grad_final", do=th.clip_zscore(z=Z, warmup=WARMUP, alpha=ALPHA)),
        th.Hook("after", on="**", at="grad_final", do=th.stats()),
        th.Hook("moved", on="**", at="update", do=th.ratio()),
    ])  # fmt: skip


def whole(tensor: Any) -> Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


class ByHand:
    """Do by hand what the plan does."""

    def __init__(self, model: nn.Module) -> None:
        self.parameters = list(model.parameters())
        self.seen = [(0.0, 0.0, 0) for _ in self.parameters]

    def clip(self) -> None:
        # torch.nn.utils.clip_grad_norm_ does not accept gradients of different meshes in one call.
        total = torch.stack([whole(p.grad).norm() for p in self.parameters]).norm().item()
        for p in self.parameters:
            p.grad = p.grad * min(1.0, LIMIT / (total + 1e-6))
        for number, p in enumerate(self.parameters):
            norm = whole(p.grad).norm().item()
            mean, var, seen = self.seen[number]
            limit = mean + Z * var**0.5 if seen >= WARMUP else float("inf")
            clipped = min(norm, limit)
            keep = min(seen / (seen + 1), ALPHA)
            difference = clipped - mean
            self.seen[number] = (
                keep * mean + (1 - keep) * clipped, keep * (var + (1 - keep) * difference**2), seen + 1,
            )  # fmt: skip
            if clipped < norm:
                p.grad = p.grad * (clipped / (norm + 1e-6))


def train(regime: str, steps: int) -> dict[str, Any]:
    model, optimizer = build(regime)
    rig = th.attach(model, plan(), optimizer=optimizer)
    twin, of_twin = build(regime)
    hand = ByHand(twin)
    found: list[dict[str, dict[str, dict[str, float]]]] = []
    for step in range(steps):
        for one, its in ((model, optimizer), (twin, of_twin)):
            its.zero_grad()
            backward(one, regime, step)
        optimizer.step()
        hand.clip()
        of_twin.step()
        found.append({id: rig.values(id) for id in ("before", "after", "moved")})
    apart = 0.0
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        a, b = whole(mine.detach()), whole(theirs.detach())
        apart = max(apart, ((a - b).norm() / b.norm()).item())
    weights = {n.removeprefix("module."): whole(p.detach()).double().norm().item() for n, p in model.named_parameters()}
    clipped = sum(site.changed for site in rig.ledger["clip"].values())
    rig.detach()
    return {"apart": apart, "numbers": found, "weights": weights, "clipped": clipped}


def main(regime: str, steps: int) -> None:
    if regime != "single":
        dist.init_process_group("gloo")
    made = train(regime, steps)
    if regime == "single" or dist.get_rank() == 0:
        print("made " + json.dumps(made), flush=True)
    leave()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
