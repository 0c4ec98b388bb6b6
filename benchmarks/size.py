"""Measure resolving and attaching 10^5 sites to a mixture of experts with about 45,000 tensors on the meta device.

    python benchmarks/size.py

This prints the seconds, and how the time per site grows from 10^4 to 10^5 sites.
"""

from __future__ import annotations

import gc
import time

import torch
from torch import nn

import tenterhook as th


def moe(layers: int, experts: int) -> nn.Module:
    def expert() -> nn.Module:
        return nn.ModuleDict({n: nn.Linear(8, 8, bias=False) for n in ("gate", "up", "down")})

    def layer() -> nn.Module:
        return nn.ModuleDict({"attn": nn.Linear(8, 8), "experts": nn.ModuleList(expert() for _ in range(experts))})

    with torch.device("meta"):
        return nn.ModuleDict({"layers": nn.ModuleList(layer() for _ in range(layers))})


def plan() -> th.Plan:
    return th.Plan(
        [
            th.Hook("norms", on="**", at="grad_final", do=th.stats()),
            th.Hook("clip", on="layers.*.experts.**.weight", at="grad", do=th.clip_value(1.0)),
            th.Hook("attn", on=["**", "!**.experts.**"], at="grad_accumulated", do=th.nan_to_num()),
        ]
    )


def attach_seconds(layers: int, experts: int) -> tuple[int, float]:
    model = moe(layers, experts)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    best = float("inf")
    for _ in range(3):
        gc.collect()
        start = time.thread_time()
        rig = th.attach(model, plan(), optimizer=optimizer)
        best = min(best, time.thread_time() - start)
        sites = sum(map(len, rig.ledger.values()))
        rig.detach()
    return sites, best


def main() -> tuple[float, float]:
    small_sites, small = attach_seconds(6, 256)
    sites, seconds = attach_seconds(66, 256)
    growth = (seconds / sites) / (small / small_sites)
    print(f"{small_sites} sites: {small:.2f} s, {small / small_sites * 1e6:.1f} µs per site")
    print(f"{sites} sites: {seconds:.2f} s, {seconds / sites * 1e6:.1f} µs per site")
    print(f"time per site, large / small: {growth:.2f} (goal 1.5); resolve + attach: {seconds:.2f} s (goal 3)")
    return seconds, growth


if __name__ == "__main__":
    main()
