"""Run every capability once for each private accessor of torch, as if torch did not have what the accessor reads.

Each accessor is tried in a forked process that has torch, but not tenterhook. The results are printed as JSON lines.
This file replaces the two functions of `torch_internals.capabilities` that look for attributes, before anything of
tenterhook reads them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch._dynamo
import torch.distributed as dist
import torch.distributed.fsdp
import torch.distributed.pipelining
from torch import nn
from torch.utils.checkpoint import checkpoint

SOURCE = Path(__file__).parents[2] / "src" / "tenterhook"


def prepare(absent: str | None) -> tuple[dict[str, list[str]], Any]:
    """Load the module that finds attributes, and make one of its accessors find nothing."""
    name = "tenterhook.torch_internals.capabilities"
    for parent in ("tenterhook", "tenterhook.torch_internals"):  # load this one file without the package around it
        spec = importlib.util.spec_from_loader(parent, loader=None, is_package=True)
        assert spec is not None
        package = importlib.util.module_from_spec(spec)
        package.__path__ = [str(SOURCE.joinpath(*parent.split(".")[1:]))]
        sys.modules[parent] = package
    import tenterhook.torch_internals.capabilities as capabilities

    for parent in ("tenterhook", "tenterhook.torch_internals"):
        del sys.modules[parent]
    sys.modules[name] = capabilities
    accessors: dict[str, list[str]] = {}
    find, look_for, needed_for = capabilities.find, capabilities.look_for, capabilities.needed_for

    look_up = capabilities._look_up

    def looking_up(path: str, *within: Any) -> Any:
        if path == absent:
            raise AttributeError(path)
        return look_up(path, *within)

    capabilities._look_up = looking_up

    def finding(path: str, *lost: Any, **options: Any) -> Any:
        accessors.setdefault(path, []).extend(one.name for one in lost)
        return find(path, *lost, **options)

    def looking(example: object, attribute: str, *lost: Any) -> bool:
        key = f"{type(example).__name__}.{attribute}"
        accessors.setdefault(key, []).extend(one.name for one in lost)
        if key != absent:
            return bool(look_for(example, attribute, *lost))
        capabilities._disable(lost, key)
        return False

    def needing(capability: Any, **otherwise: Any) -> Any:
        def decorate(fn: Any) -> Any:
            accessors[fn.__name__] = [capability.name]

            def missing(*args: Any, **kwargs: Any) -> Any:
                raise AttributeError(f"{fn.__name__} found nothing")

            return needed_for(capability, **otherwise)(missing if fn.__name__ == absent else fn)

        return decorate

    capabilities.find, capabilities.look_for, capabilities.needed_for = finding, looking, needing
    return accessors, capabilities


class Net(nn.Module):
    def __init__(self, inner: Callable[..., Any] | None = None, *, tapped: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)
        self.inner = inner
        self.tapped = tapped

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        import tenterhook as th

        x = checkpoint(self.first, x, use_reentrant=False) if self.inner is checkpoint else self.first(x)
        if self.tapped:
            x = th.tap(x.relu(), "hidden")
        return self.second(x)


def train(model: nn.Module, *hooks: Any, optimizer: bool = True) -> Any:
    """Train for three steps with hooks, and return the counts and the weights."""
    import tenterhook as th

    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    rig = th.attach(model, th.Plan(hooks), optimizer=sgd if optimizer else None)
    data = torch.arange(12.0).view(3, 4) / 10
    for _ in range(3):
        sgd.zero_grad()
        model(data).square().mean().backward()
        sgd.step()
    fired = {hook.id: rig.ledger[hook.id].fired for hook in hooks}
    rig.detach()
    return fired, [parameter.detach().flatten().tolist() for parameter in model.parameters()]


def eager() -> Any:
    import tenterhook as th

    clip = th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(0.1))
    seen = th.Hook("seen", on="first", at="output", do=th.stats())
    moved = th.Hook("moved", on="**", at="update", do=th.stats())
    return train(Net(), clip, seen, moved)


def at(point: str, on: str = "first", **model: Any) -> Callable[[], Any]:
    def scenario() -> Any:
        import tenterhook as th

        return train(Net(**model), th.Hook("hook", on=on, at=point, do=th.clip_value(0.01)))

    return scenario


def function() -> Any:
    import tenterhook as th

    return train(Net(), th.Hook("hook", on="first.weight", at="grad_final", do=lambda grad: grad * 0.5))


def no_optimizer() -> Any:
    import tenterhook as th

    return train(Net(), th.Hook("hook", on="first", at="output", do=th.stats()), optimizer=False)


def several() -> Any:
    import tenterhook as th

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    th.attach(model, th.Hook("a", on="**", at="grad_final", do=th.clip_norm(0.1)), optimizer=optimizer)
    return train(model, th.Hook("b", on="first.weight", at="grad_final", do=th.clip_value(0.01)))


def compiled() -> Any:
    import tenterhook as th

    torch._dynamo.reset()
    model = Net()
    model.compile(backend="eager")
    return train(model, th.Hook("hook", on="first", at="output", do=th.clip_value(0.01)))


def ranks() -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    from tenterhook import torch_internals
    from tenterhook.ranks import world

    connection = torch_internals.Connection(world.store(), "alone", 0, 1, 5.0)
    total = connection.reduce(torch.ones(2), torch_internals.ReduceKind.SUM).tolist()
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("a", "b"))
    # A forked process cannot free a DDP module. `tests/support/ranks/faults.py` runs `join()` itself.
    joins = torch_internals.uses_join(SimpleNamespace(_join_config=SimpleNamespace(enable=True)))
    connection.close()
    return type(world.store()).__name__, total, torch_internals.root_mesh(mesh["b"]).ndim, joins


def gathered() -> Any:
    import tenterhook as th

    model = Net()
    torch.distributed.fsdp.fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rig = th.attach(model, th.Hook("hook", on="**", at="grad", do=th.stats()), optimizer=optimizer)
    rig.detach()
    return len(rig.ledger["hook"])


def pipeline() -> Any:
    from tenterhook import torch_internals

    model = Net()
    stage = torch.distributed.pipelining.PipelineStage(model, 0, 1, torch.device("cpu"))
    return torch_internals.splits_backward(model), stage.is_first


def inventory() -> Any:
    import tenterhook as th

    model = Net()
    model.first.weight.register_hook(lambda grad: None)
    found = th.inventory(model, optimizer=torch.optim.SGD(model.parameters()))
    return [(one.target, one.registered_by) for one in found]


def doctor() -> Any:
    import tenterhook as th

    model = Net()
    with th.examine(model) as exam:
        model.first.weight.register_hook(lambda grad: grad * 0.5)
        model(torch.ones(1, 4)).sum().backward()
    return [(hook.function, hook.fired) for hook in exam.hooks], exam.findings.codes


def compiled_exam() -> Any:
    import tenterhook as th

    torch._dynamo.reset()
    model = Net()
    with th.examine(model) as exam:
        model.first.register_forward_hook(lambda module, args, output: None)
        torch.compile(model, backend="aot_eager")(torch.ones(1, 4)).sum().backward()
    return exam.findings.codes


def sharded_exam() -> Any:
    import tenterhook as th

    model = Net()
    torch.distributed.fsdp.fully_shard(model)
    with th.examine(model) as exam:
        model.first.weight.register_hook(lambda grad: None)
        model(torch.ones(1, 4)).sum().backward()
    return exam.findings.codes


def rerun() -> Any:
    from tenterhook.errors import RefusedError
    from tenterhook.verdict.examiner import Examiner

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    examiner = Examiner(model, [optimizer])
    (model(torch.ones(1, 4)).sum() * torch.nan).backward()
    optimizer.step()
    examiner.close()
    (exam,) = examiner.examinations
    if exam.refusal is not None:
        raise RefusedError(exam.refusal)
    return [one.code for one in examiner.verdicts()]


#: by name of a capability: a program that needs it
SCENARIOS: dict[str, Callable[[], Any]] = {
    "eager": eager,
    "BACKWARD": at("grad", "first.weight"),
    "MODULE_GRADS": at("grad_output"),
    "GRAD_INPUT": at("grad_input", "second"),
    "TAPS": at("value", "**:hidden", tapped=True),
    "FUNCTIONS": function,
    "CHECKPOINTS": at("output", inner=checkpoint),
    "NO_OPTIMIZER": no_optimizer,
    "SEVERAL_RIGS": several,
    "COMPILED": compiled,
    "RANKS": ranks,
    "GATHERED": gathered,
    "PIPELINES": pipeline,
    "INVENTORY": inventory,
    "DOCTOR": doctor,
    "RERUN": rerun,
    "SHARDED_EXAM": sharded_exam,
    "COMPILED_EXAM": compiled_exam,
}


def attempt(scenario: Callable[[], Any]) -> dict[str, Any]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = {"result": scenario()}
        except Exception as error:
            result = {"error": type(error).__name__, "text": str(error)}
    return {**result, "warned": [str(one.message) for one in caught if "cannot support" in str(one.message)]}


def tried(absent: str | None, wanted: list[str]) -> dict[str, Any]:
    """Return what each scenario did in a process without one attribute."""
    accessors, capabilities = prepare(absent)
    import tenterhook
    import tenterhook.doctor  # noqa: F401

    done = {}
    for name in wanted:
        capabilities._warned.clear()
        done[name] = attempt(SCENARIOS[name])
    return {"absent": absent, "accessors": accessors, "done": done}


def in_child(absent: str | None, wanted: list[str], out: Any) -> None:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        try:
            made = tried(absent, wanted)
        except BaseException as error:
            made = {"absent": absent, "import": f"{type(error).__name__}: {error}"}
        with os.fdopen(write, "w") as pipe:
            pipe.write(json.dumps(made))
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        out.append(json.loads(pipe.read() or json.dumps({"absent": absent, "import": "the process died"})))
    os.waitpid(pid, 0)


def scenarios(lost: list[str]) -> list[str]:
    """Return all scenarios, without those that compile if the accessor is not for the compiler: they take seconds."""
    compiles = {"COMPILED", "COMPILED_EXAM"}
    return [name for name in SCENARIOS if name not in compiles or compiles.intersection(lost)]


def main(step: int = 1, start: int = 0) -> None:
    """Print a row without any absence, and one for every accessor, or every second, third and so on."""
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    first: list[dict[str, Any]] = []
    in_child(None, list(SCENARIOS), first)
    print(json.dumps(first[0]), flush=True)
    for accessor, lost in list(first[0]["accessors"].items())[start::step]:
        made: list[dict[str, Any]] = []
        in_child(accessor, scenarios(lost), made)
        print(json.dumps(made[0]), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
