"""Measure the costs on several ranks.

python -m benchmarks.ranks scale [WORLD]  # a fake group of 1,024 ranks: collectives, bytes, seconds to attach
python -m benchmarks.ranks cost [COUNT]   # CPU time that hooks add to a step with 1,000 sharded parameters
python -m benchmarks.ranks                # two real ranks with DDP: a step with statistics compared with a bare step
"""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn

import tenterhook as th
from benchmarks.gpt import GPT, VOCABULARY
from tenterhook.torch_internals import Connection, ReduceKind

LAYERS, EXPERTS = 61, 245


class Layer(nn.Module):
    """Hold as many tensors as a layer of a large mixture of experts. Each tensor is tiny."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(
            nn.ParameterDict({n: torch.ones(8, 2) for n in ("w1", "w2", "w3")}) for _ in range(EXPERTS)
        )  # type: ignore[arg-type]
        self.norm = nn.LayerNorm(8)


@contextmanager
def counting(found: list[tuple[str, int]]) -> Iterator[None]:
    """Record the kind and the bytes of every reduction that tenterhook starts."""
    real = Connection.reduce

    def counted(connection: Connection, tensor: torch.Tensor, kind: ReduceKind) -> torch.Tensor:
        found.append((kind.name, tensor.numel() * tensor.element_size()))
        return real(connection, tensor, kind)

    Connection.reduce = counted  # type: ignore[method-assign]
    try:
        yield
    finally:
        Connection.reduce = real  # type: ignore[method-assign]


def scale(world: int) -> None:
    from torch.testing._internal.distributed.fake_pg import FakeProcessGroup  # noqa: F401 - registers the backend

    dist.init_process_group("fake", rank=0, world_size=world, store=dist.HashStore())
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (world,))
    model = nn.Module()
    model.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            spread = distribute_tensor(parameter.detach(), mesh, [Shard(0)], src_data_rank=None)
            module.register_parameter(name, nn.Parameter(spread))
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.0, foreach=False)
    print(f"{len(parameters):,} tensors, each sharded over {world:,} ranks")
    actions = {
        "stats": th.stats(), "spike": th.spike(), "histogram": th.histogram(), "clip_norm": th.clip_norm(1.0),
        "clip_norm over all": th.clip_norm(1.0, over="hook"),
    }  # fmt: skip
    for name, do in actions.items():
        met: list[tuple[str, int]] = []
        begun = time.thread_time()
        with counting(met):
            rig = th.attach(model, th.Hook("h", on="**", at="grad_final", do=do), optimizer=optimizer)
        attached = time.thread_time() - begun
        for parameter in parameters:
            parameter.grad = parameter.detach().clone()
        step: list[tuple[str, int]] = []
        with counting(step):
            optimizer.step()
        reductions = ", ".join(f"{kind} {size:,} bytes" for kind, size in step)
        print(f"{name}: attached in {attached:.1f} s with {len(met)} reductions, {sum(s for _, s in met):,} bytes; "
              f"reductions per step: {reductions}")  # fmt: skip
        rig.detach()
    dist.destroy_process_group()


def cost(count: int, sharded: bool) -> None:
    """Print the CPU time that hooks add to an optimizer's step, next to `clip_grad_norm_`. The turns alternate.

    The optimizer changes nothing, so that its own time does not hide that of the hooks. The first 64 steps are
    left out, because the auditor looks at nearly all of the early steps.
    """
    from torch.testing._internal.distributed.fake_pg import FakeProcessGroup  # noqa: F401 - registers the backend

    if sharded:
        dist.init_process_group("fake", rank=0, world_size=8, store=dist.HashStore())
    torch.set_num_threads(1)
    kinds: dict[str, th.Hook | None] = {
        "nothing": None,
        "an idle plan": th.Hook("h", on="**", at="grad_final", do=th.stats(), when=th.When(start=10**9)),
        "stats at grad_final": th.Hook("h", on="**", at="grad_final", do=th.stats()),
        "stats at update": th.Hook("h", on="**", at="update", do=th.stats()),
        "clip_norm over all": th.Hook("h", on="**", at="grad_final", do=th.clip_norm(1.0, over="hook")),
        "clip_grad_norm_": None,
    }
    made = {name: _tiny_model(count, sharded) for name in kinds}
    for name, hook in kinds.items():
        if hook is not None:
            th.attach(made[name][0], hook, optimizer=made[name][1])
    times: dict[str, list[float]] = {name: [] for name in kinds}
    gc.freeze()  # otherwise the collections in one model's turn look at the tensors of all six
    for _, optimizer in made.values():
        for _ in range(64):
            optimizer.step()
    for _ in range(int(os.environ.get("TURNS", "64"))):
        for name, (model, optimizer) in made.items():
            begun = time.thread_time()
            if name == "clip_grad_norm_":
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            times[name].append(time.thread_time() - begun)
    middle = {name: statistics.median(found) for name, found in times.items()}
    added = {name: 1000 * (one - middle["nothing"]) for name, one in middle.items()}
    print(f"{count:,} parameters, {'sharded over 8 ranks of a fake group' if sharded else 'on one process'}")
    for name in list(kinds)[1:]:
        print(f"  {name}: {added[name]:.2f} ms of CPU time per step")
    audited = 1000 * statistics.mean(times["an idle plan"]) - 1000 * middle["nothing"]
    print(f"  an idle plan with the sampled audits: {audited:.2f} ms of CPU time per step on average")
    clip, update = added["clip_norm over all"], added["stats at update"]
    print(f"  clip_norm over all / clip_grad_norm_: {clip / added['clip_grad_norm_']:.2f}")
    print(f"  stats at update / at grad_final: {update / added['stats at grad_final']:.2f}")


def clip_of_models() -> None:
    """Print the cost of a clip over the whole model next to `clip_grad_norm_`, on two models on one process."""
    torch.set_num_threads(1)
    for model_of in (lambda: GPT(64, 4, 4, 64), lambda: GPT(512, 8, 8, 128)):
        models = [model_of() for _ in range(3)]
        for model in models:
            for parameter in model.parameters():
                parameter.grad = torch.randn_like(parameter)
        optimizers = [Still(model.parameters(), {}) for model in models]
        hook = th.Hook("h", on="**", at="grad_final", do=th.clip_norm(1.0, over="hook"))
        th.attach(models[0], hook, optimizer=optimizers[0])
        times: list[list[float]] = []
        for _ in range(int(os.environ.get("TURNS", "192"))):
            times.append([])
            for turn, optimizer in enumerate(optimizers):
                begun = time.thread_time()
                if turn == 1:
                    nn.utils.clip_grad_norm_(models[turn].parameters(), 1.0)
                optimizer.step()
                times[-1].append(time.thread_time() - begun)
        middle = [1000 * statistics.median(one) for one in zip(*times[len(times) // 3 :], strict=True)]
        hooked, plain = middle[0] - middle[2], middle[1] - middle[2]
        count = sum(p.numel() for p in models[0].parameters())
        print(f"{count / 1e6:.2f} M parameters on one process: clip_norm over all {hooked:.2f} ms, "
              f"clip_grad_norm_ {plain:.2f} ms of CPU time per step; ratio {hooked / plain:.2f}")  # fmt: skip


def _tiny_model(count: int, sharded: bool) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a model with many small parameters that have gradients, and its optimizer."""
    tensors = [torch.ones(16, 8) for _ in range(count)]
    if sharded:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor

        mesh = init_device_mesh("cpu", (8,))
        tensors = [distribute_tensor(one, mesh, [Shard(0)], src_data_rank=None) for one in tensors]
    model = nn.ParameterList([nn.Parameter(one) for one in tensors])
    for one in model:
        one.grad = one.detach().clone()
    return model, Still(model.parameters(), {})


class Still(torch.optim.Optimizer):
    """Change nothing in a step."""

    def step(self, closure: object = None) -> None:
        pass


def overhead() -> None:
    """Compare a model with statistics of all gradients in one step in ten with a bare copy, alternating in one run."""
    dist.init_process_group("gloo")
    torch.set_num_threads(1)

    def build() -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = nn.parallel.DistributedDataParallel(GPT(width=256, layers=4, heads=4, length=64))
        return model, torch.optim.AdamW(model.parameters(), lr=1e-3)

    bare, hooked = build(), build()
    hook = th.Hook("norms", on="**", at="grad_final", do=th.stats(), when=th.When(every=10))
    rig = th.attach(hooked[0], hook, optimizer=hooked[1])
    tokens = torch.randint(VOCABULARY, (4, 65))

    def block(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[float, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(10):
            optimizer.zero_grad()
            logits = model(tokens[:, :-1])
            nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
            optimizer.step()
        return time.perf_counter() - wall, time.process_time() - cpu

    for one in (bare, hooked):
        block(*one)
    ratios = []
    for turn in range(int(os.environ.get("TURNS", "15"))):
        pair = [block(*one)[1] for one in ((bare, hooked) if turn % 2 else (hooked, bare))]
        ratios.append(pair[1] / pair[0] if turn % 2 else pair[0] / pair[1])
    if dist.get_rank() == 0:
        count = sum(p.numel() for p in bare[0].parameters())
        print(f"DDP on 2 ranks, {count / 1e6:.1f} M parameters, statistics in one step in ten: "
              f"{statistics.median(ratios):.3f} of the CPU time of a bare step (quartiles "
              f"{statistics.quantiles(ratios)[0]:.3f} to {statistics.quantiles(ratios)[2]:.3f})")  # fmt: skip
    rig.detach()
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1:2] == ["scale"]:
        scale(int(sys.argv[2]) if len(sys.argv) > 2 else 1024)
    elif sys.argv[1:2] == ["cost"]:
        many = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
        clip_of_models()
        cost(many, sharded=False)
        cost(many, sharded=True)
    elif "RANK" in os.environ:
        overhead()
    else:
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node=2",
            "-m",
            "benchmarks.ranks",
        ]
        sys.exit(subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}).returncode)
