"""Measure what comparing replicas costs in a step of a model with 25 million parameters.

torchrun --nproc-per-node=2 -m benchmarks.replicas [STEPS]

Steps without and with the hook alternate, so that all of them see the same machine. The costs are CPU time of the
training thread and the time that the ranks wait for each other; the numbers are medians of rank 0.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

import tenterhook as th

WIDTH, LAYERS, BATCH, LENGTH = 512, 8, 4, 128
EVERY = {"all64": 64, "all1": 1}


def build() -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)


def timed(act: Callable[[], object]) -> tuple[float, float]:
    """Return the CPU time and the wall time of a call, in milliseconds."""
    wall, cpu = time.perf_counter(), time.thread_time()
    act()
    return (time.thread_time() - cpu) * 1e3, (time.perf_counter() - wall) * 1e3


def main(steps: int) -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    model = nn.parallel.DistributedDataParallel(build())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = torch.randn(BATCH, LENGTH, WIDTH, generator=torch.Generator().manual_seed(dist.get_rank()))
    plan = [th.Hook(id, on="**", at="grad_final", do=th.replicas(every=every)) for id, every in EVERY.items()]
    rig = th.attach(model, plan, optimizer=optimizer)
    names = [*EVERY, "nothing"]
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in [*names, "norm", "step"]}

    def forward_and_backward() -> None:
        optimizer.zero_grad()
        model(data).square().mean().backward()

    for step in range(steps * len(names)):
        for id in EVERY:
            rig.unmute(id) if id == names[step % len(names)] else rig.mute(id)
        passes = timed(forward_and_backward)
        dist.barrier()
        took = timed(optimizer.step)
        if step >= 2 * len(names):
            times[names[step % len(names)]].append(took)
            times["norm"].append(timed(lambda: torch._foreach_norm([p.grad for p in model.parameters()])))
            times["step"].append((passes[0] + took[0], passes[1] + took[1]))
    if dist.get_rank() == 0:
        cpu, wall = ({name: statistics.median(one[i] for one in some) for name, some in times.items()} for i in (0, 1))
        count = sum(p.numel() for p in model.parameters()) / 1e6
        print(f"{count:.1f} million parameters, {dist.get_world_size()} ranks; a step: {wall['step']:.0f} ms")
        for name, every in EVERY.items():
            more = cpu[name] - cpu["nothing"], wall[name] - wall["nothing"]
            print(f"every={every}: {more[0]:.1f} ms more CPU time, {more[1]:.1f} ms in all, "
                  f"{more[1] / wall['step']:.2%} of a step")  # fmt: skip
        print(f"one _foreach_norm of the gradients: {cpu['norm']:.1f} ms of CPU time")
    rig.detach()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
