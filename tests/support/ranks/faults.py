"""Run two ranks that do different things, or of which one fails: every rank must raise in time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import tenterhook as th
from tenterhook.ranks import group
from tests.support.ranks.launch import run_programs

group.PATIENCE = 2.0


def model() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    made = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)))
    return made, torch.optim.SGD(made.parameters(), lr=0.1)


def raised(act: Callable[[], Any]) -> th.TenterhookError:
    try:
        act()
    except th.TenterhookError as error:
        return error
    raise AssertionError("nothing was raised")


def alike(error: th.TenterhookError) -> str:
    """Assert that every rank raised the same error, and return its text."""
    found: list[Any] = [None, None]
    dist.all_gather_object(found, (type(error).__name__, str(error)))
    assert found[0] == found[1], found
    return found[0][1]


STATS = th.Hook("stats", on="**", at="grad_final", do=th.stats())


def absent(rank: int) -> None:
    """Check that `if rank == 0: attach` does not hang, and leaves no hooks behind."""
    one, optimizer = model()
    begun = time.monotonic()
    if rank == 0:
        error = raised(lambda: th.attach(one, STATS, optimizer=optimizer))
        assert isinstance(error, th.RanksError) and error.rank == 0
        assert error.fact == "1 of 2 ranks did not call attach within 2 s: 1"
        assert time.monotonic() - begun < 4
    dist.barrier()
    rig = th.attach(one, STATS, optimizer=optimizer)
    assert rig.attached
    rig.detach()


def another_plan(rank: int) -> None:
    one, optimizer = model()
    hooks = [STATS, th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(1.0 + rank))]
    text = alike(raised(lambda: th.attach(one, hooks, optimizer=optimizer)))
    assert (
        "the ranks called attach with different arguments: rank 0 has" in text
        and "max=1.0" in text
        and "max=2.0" in text
    ), text


def a_missing_hook(rank: int) -> None:
    one, optimizer = model()
    hooks = [STATS, th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(1.0))]
    text = alike(raised(lambda: th.attach(one, hooks[: 2 - rank], optimizer=optimizer)))
    assert "but rank 1 has no corresponding hook" in text, text
    assert not one._forward_pre_hooks, "nothing was touched"


def other_code(rank: int) -> None:
    one, optimizer = model()
    do = (lambda g: g * 2) if rank else (lambda g: g * 3)
    alike(raised(lambda: th.attach(one, th.Hook("own", on="**", at="grad", do=do), optimizer=optimizer)))


def refused_on_one(rank: int) -> None:
    """Check that no rank attaches a hook that one rank refuses."""
    one, optimizer = model()
    given = optimizer if rank == 0 else None
    text = alike(raised(lambda: th.attach(one, STATS, optimizer=given)))
    assert text.startswith("hook 'stats' at grad_final (rank 1): this point needs an optimizer"), text


def changes(rank: int) -> None:
    """Check that a change of a rig happens on all ranks or on none."""
    one, optimizer = model()
    rig = th.attach(one, STATS, optimizer=optimizer)
    alike(raised(lambda: rig.add(th.Hook(f"more{rank}", on="**", at="grad", do=th.stats()))))
    alike(raised(lambda: rig.mute("stats") if rank else rig.mute("other")))
    assert list(rig.ledger) == ["stats"] and not rig._attached_hook("stats").status.is_muted
    rig.add(th.Hook("more", on="**", at="grad", do=th.stats()))
    rig.mute("more")
    rig.unmute("more")
    rig.remove("more")
    assert list(rig.ledger) == ["stats"]
    rig.detach()


def failing(point: str, on: str) -> Callable[[int], None]:
    """Build a program whose modifier fails on rank 1 in the second step. No rank may step."""

    def program(rank: int) -> None:
        one, optimizer = model()
        count = [0]

        def own(x: torch.Tensor) -> torch.Tensor:
            count[0] += 1
            if rank == 1 and count[0] == 2:
                raise ZeroDivisionError("own arithmetic")
            return x * 1

        rig = th.attach(one, th.Hook("own", on=on, at=point, do=own), optimizer=optimizer)
        for step in range(2):
            optimizer.zero_grad()
            one(torch.ones(2, 4) + step).square().mean().backward()
            before = [p.detach().clone() for p in one.parameters()]
            if step == 0:
                optimizer.step()
        dist.barrier()
        begun = time.monotonic()
        error = raised(optimizer.step)
        assert time.monotonic() - begun < 2
        text = alike(error)
        assert isinstance(error, th.HookError) and error.rank == 1 and error.hook == "own" and error.point == point
        assert "raised ZeroDivisionError: own arithmetic (step 1)" in text
        assert all(torch.equal(p, q) for p, q in zip(one.parameters(), before, strict=True)), "no weight has moved"
        optimizer.step()  # the next step is normal again
        assert not all(torch.equal(p, q) for p, q in zip(one.parameters(), before, strict=True))
        rig.detach()

    return program


def failing_after_the_step(rank: int) -> None:
    """Check that an error after the weights have moved is raised in the same step."""
    one, optimizer = model()

    def own(given: Any) -> None:
        if rank == 1:
            raise ZeroDivisionError("own arithmetic")

    rig = th.attach(one, th.Hook("own", on="optimizer", at="step_post", do=own), optimizer=optimizer)
    one(torch.ones(2, 4)).sum().backward()
    error = raised(optimizer.step)
    assert error.rank == 1 and "own arithmetic" in alike(error)
    rig.detach()


def failing_in_a_save(rank: int) -> None:
    """Check that an error in `state_dict` is raised on its rank alone, since one rank may save by itself."""
    one, optimizer = model()

    def own(given: Any) -> None:
        raise ZeroDivisionError("own arithmetic")

    rig = th.attach(one, th.Hook("own", on=".", at="save_post", do=own), optimizer=optimizer)
    if rank == 1:
        assert "own arithmetic" in str(raised(one.state_dict))
    one(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    rig.detach()


def a_muted_site(rank: int) -> None:
    """Check that an observer that fails on one rank is muted there, and that no rank waits."""
    one, optimizer = model()
    registry = th.Registry()

    @th.action("frail", registry=registry)
    def frail(x: torch.Tensor, ctx: th.Context) -> None:
        if rank == 1:
            raise ZeroDivisionError
        ctx.emit("norm", x.norm())

    hooks = [STATS, th.Hook("frail", on="**.weight", at="grad", do=frail())]
    rig = th.attach(one, hooks, optimizer=optimizer, actions=registry)
    for _ in range(3):
        optimizer.zero_grad()
        one(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()
    assert rig.ledger["frail"].failed == (2 if rank else 0) and rig.ledger["stats"].fired == 12
    rig.detach()


def flat_parameters(rank: int) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    one = FullyShardedDataParallel(nn.Linear(4, 4), device_id=torch.device("cpu"), use_orig_params=True)
    optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
    text = alike(raised(lambda: th.attach(one, STATS, optimizer=optimizer)))
    assert "FullyShardedDataParallel replaces the parameters with parts of a flat tensor" in text


def summands(rank: int) -> None:
    """Check that a partial gradient is summed over ranks before it is measured."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, distribute_tensor

    mesh = init_device_mesh("cpu", (2,))
    one = nn.Module()
    one.weight = nn.Parameter(distribute_tensor(torch.zeros(3), mesh, [Replicate()]))
    optimizer = torch.optim.SGD(one.parameters(), lr=1.0)
    rig = th.attach(one, STATS, optimizer=optimizer)
    one.weight.grad = DTensor.from_local(torch.tensor([1.0, 2.0, 3.0]) * (rank + 1), mesh, [Partial()])
    optimizer.step()
    total = torch.tensor([3.0, 6.0, 9.0])
    assert torch.equal(one.weight.full_tensor(), -total)
    assert abs(rig.values("stats")["weight"]["norm"] - total.norm().item()) < 1e-6
    rig.detach()


def no_effect(rank: int) -> None:
    one, optimizer = model()
    rig = th.attach(one, STATS, optimizer=optimizer)
    error = raised(lambda: th.effect(rig, one(torch.ones(2, 4)).sum()))
    assert isinstance(error, th.RefusedError) and "effect runs the backward pass twice" in error.fact
    rig.detach()


def one_by_one(rank: int) -> None:
    """Check that shards are measured the same in one batch and one by one."""
    from torch.distributed.fsdp import fully_shard

    found = []
    for together in (True, False):
        torch.manual_seed(0)
        one: Any = fully_shard(nn.Linear(4, 4))
        optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
        rig = th.attach(one, th.Hook("r", on="**", at="update", do=th.ratio()), optimizer=optimizer)
        if not together:
            rig._attached_hook("r").batch = None
        one(torch.ones(2, 4)).square().sum().backward()
        optimizer.step()
        assert rig.ledger["r"].failed == 0 and rig.ledger["r"].fired == 2
        found.append({target: row["ratio"] for target, row in rig.values("r").items()})
        rig.detach()
    assert found[0].keys() == found[1].keys() == {"weight", "bias"}
    assert all(abs(found[0][n] - found[1][n]) <= 1e-6 * found[0][n] for n in found[0]), found


def noises(rank: int) -> None:
    """Check that ranks draw different noise for different batches, and the same noise for replicated gradients."""
    drawn: dict[str, torch.Tensor] = {}
    for point, on in (("output", "0"), ("grad", "0.weight"), ("grad_final", "0.weight")):
        one, optimizer = model()
        plan = [th.Hook("noise", on=on, at=point, do=th.noise(1.0)), th.Hook("kept", on=on, at=point, do=th.capture())]
        rig = th.attach(one, plan, optimizer=optimizer)
        one(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        drawn[point] = rig.captured("kept")[on][0]
        rig.detach()
    found: list[Any] = [None, None]
    dist.all_gather_object(found, drawn)
    alike_at = {point: torch.equal(found[0][point], found[1][point]) for point in drawn}
    assert alike_at == {"output": False, "grad": False, "grad_final": True}, alike_at


def zero_bubble(rank: int) -> None:
    from torch.distributed.pipelining import PipelineStage, ScheduleInterleavedZeroBubble

    parts = [nn.Linear(4, 4) for _ in range(2)]
    stages = [PipelineStage(part, rank + 2 * i, 4, torch.device("cpu")) for i, part in enumerate(parts)]
    schedule = ScheduleInterleavedZeroBubble(stages, 4, loss_fn=lambda out, _: out.sum())
    for point, on in (("grad", "weight"), ("grad_output", ".")):
        text = alike(raised(lambda at=point, on=on: th.attach(parts[0], th.Hook("h", on=on, at=at, do=th.stats()))))
        assert "a zero-bubble schedule splits each backward pass into two parts, so this point is not available" in text
    container = nn.ModuleDict({str(i): part for i, part in zip((rank, rank + 2), parts, strict=True)})
    text = alike(raised(lambda: th.attach(container, th.Hook("h", on="**", at="grad", do=th.stats()))))
    assert "a zero-bubble schedule splits each backward pass" in text
    rig = th.attach(parts[0], th.Hook("h", on=".", at="output", do=th.stats()))
    rig.detach()
    assert schedule is not None


CLIP = th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(1.0, over="hook"))


def sharded() -> tuple[nn.Module, torch.optim.Optimizer]:
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    made: Any = fully_shard(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)))
    return made, torch.optim.SGD(made.parameters(), lr=0.1)


def backward(one: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    one(torch.ones(2, 4)).square().mean().backward()


def leaving(make: Callable[[], tuple[nn.Module, torch.optim.Optimizer]], hook: th.Hook) -> Callable[[int], None]:
    """Build a program in which rank 1 detaches alone. Rank 0 must hear of it in its next step."""

    def program(rank: int) -> None:
        one, optimizer = make()
        rig = th.attach(one, hook, optimizer=optimizer)
        backward(one, optimizer)
        optimizer.step()
        if rank == 1:
            rig.detach()
        backward(one, optimizer)
        dist.barrier()
        if rank == 1:
            optimizer.step()
            return
        begun = time.monotonic()
        error = raised(optimizer.step)
        assert isinstance(error, th.RanksError) and time.monotonic() - begun < 7, time.monotonic() - begun
        assert error.fact == "rank 1 has detached its hooks, but this rank still has them", error
        assert error.rank == 0 and "call detach on every rank" in str(error.remedy)
        assert raised(optimizer.step).fact == error.fact, "it is not forgotten"
        rig.detach()

    return program


def skipping(rank: int) -> None:
    """Check that a rank that makes one step less is named, and that it hears of it in its next step."""
    one, optimizer = model()
    rig = th.attach(one, CLIP, optimizer=optimizer)
    for step in range(2):
        backward(one, optimizer)
        if step == 0 and rank == 0:
            error = raised(optimizer.step)
            assert error.fact == "1 of 2 ranks did not reach this step within 2 s: 1", error
    dist.barrier()
    error = raised(optimizer.step)
    assert isinstance(error, th.RanksError)
    assert error.fact == "1 of 2 ranks did not reach this step within 2 s: 1", error
    rig.detach()


def other_steps(rank: int) -> None:
    """Check that states of different steps are refused on all ranks, and that nothing is loaded."""
    one, optimizer = sharded()
    every = th.Hook("n", on="**", at="grad_final", do=th.stats(), when=th.When(every=2))
    rig = th.attach(one, every, optimizer=optimizer)
    kept = []
    for _ in range(4):
        kept.append(rig.state_dict())
        backward(one, optimizer)
        optimizer.step()
    text = alike(raised(lambda: rig.load_state_dict(kept[3 - rank])))
    assert "the ranks have different states: rank 0 has step 3, but rank 1 has step 2" in text, text
    assert rig.step_count == 4
    rig.detach()
    text = alike(raised(lambda: th.restore(one, kept[3 - rank], optimizer=optimizer)))
    assert "the ranks have different states" in text, text


def at_other_steps(rank: int) -> None:
    """Check that ranks that count different steps do not merge their numbers."""
    one, optimizer = sharded()
    rig = th.attach(one, STATS, optimizer=optimizer)
    backward(one, optimizer)
    rig._clock.step += 3 * rank
    text = alike(raised(optimizer.step))
    assert "the ranks are at different steps: rank 0 is at step 0, but rank 1 is at step 3" in text, text
    rig.detach()


def muted_alone(rank: int) -> None:
    """Check that a hook that only one rank has switched off is noticed before numbers are merged."""
    one, optimizer = sharded()
    rig = th.attach(one, [STATS, CLIP], optimizer=optimizer)
    backward(one, optimizer)
    optimizer.step()
    if rank == 1:
        rig._attached_hook("clip").mute()
        rig._apply_schedule()
    backward(one, optimizer)
    text = alike(raised(optimizer.step))
    assert "the ranks have different hooks: those of rank 0 differ from those of rank 1" in text, text
    rig.detach()


def uneven_batches(rank: int) -> None:
    """Check that observers work inside `join()`, and that modifiers are refused on all ranks."""
    one, optimizer = model()
    rig = th.attach(one, STATS, optimizer=optimizer)
    with one.join():
        for _ in range(2 + 2 * rank):
            backward(one, optimizer)
            optimizer.step()
    assert rig.ledger["stats"]["0.weight"].fired == 2 + 2 * rank
    rig.detach()
    rig = th.attach(one, CLIP, optimizer=optimizer)
    with one.join():
        backward(one, optimizer)
        error = raised(optimizer.step)
    assert isinstance(error, th.RefusedError) and "inside join()" in error.fact
    rig.detach()


def saving(rank: int) -> None:
    """Check that an asynchronous checkpoint on the default process group does not disturb the hooks."""
    import shutil
    import tempfile

    import torch.distributed.checkpoint as dcp

    one, optimizer = model()
    rig = th.attach(one, CLIP, optimizer=optimizer)
    folder: list[Any] = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder)
    group = dist.new_group([0, 1])
    for step in range(6):
        if step in (0, 3):
            state = {"model": one.module.state_dict(), "hooks": rig}
            saved = dcp.async_save(state, checkpoint_id=f"{folder[0]}/{step}", process_group=group)
        backward(one, optimizer)
        optimizer.step()
        if step in (2, 5):
            saved.result(timeout=40)
    assert rig.ledger["clip"].fired == 6 * 4
    rig.detach()
    dist.barrier()
    if rank == 0:
        shutil.rmtree(folder[0])


def replicas_beside_shards(rank: int) -> None:
    """Check that a plain parameter of a tensor-parallel model is measured once, and not once for each rank."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.manual_seed(0)
    one = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4), nn.Linear(4, 2)).double()
    parallelize_module(one, init_device_mesh("cpu", (2,)), {"0": ColwiseParallel(), "1": RowwiseParallel()})
    optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
    hooks = [th.Hook(at, on="**", at=at, do=th.stats()) for at in ("grad", "grad_accumulated", "grad_final")]
    rig = th.attach(one, hooks, optimizer=optimizer)
    one(torch.ones(3, 4, dtype=torch.float64)).square().sum().backward()
    whole = {name: getattr(p.grad, "full_tensor", p.grad.clone)() for name, p in one.named_parameters()}
    norms = {name: grad.norm().item() for name, grad in whole.items()}
    optimizer.step()
    for hook in hooks:
        found = {name: numbers["norm"] for name, numbers in rig.values(hook.id).items()}
        assert found.keys() == norms.keys()
        assert all(abs(found[n] - norms[n]) <= 1e-9 * norms[n] for n in norms), (hook.id, found, norms)
    rig.detach()


def a_trigger_on_one(rank: int) -> None:
    """Check that a trigger at a point where each rank has its own gradient looks at the gradients of all ranks."""
    one, optimizer = model()
    rig = th.attach(one, th.Hook("bad", on="**", at="grad", do=th.watch_nonfinite()), optimizer=optimizer)
    (one(torch.ones(2, 4)).sum() * (float("nan") if rank == 1 else 1.0)).backward()
    optimizer.step()
    assert all(numbers["nonfinite"] > 0 for numbers in rig.values("bad").values()), rig.values("bad")
    rig.detach()


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, both: bool) -> torch.Tensor:
        return self.b(self.a(x)) if both else self.a(x)


def no_gradients(rank: int) -> None:
    """Check steps in which no target of a merged modifier has a gradient, and two optimizers of which one has none."""
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    one: Any = Branches()
    for part in (one.a, one.b, one):
        fully_shard(part)
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (one.a, one.b)]
    hooks = [th.Hook(over, on="b.**", at="grad_final", do=th.clip_norm(0.1, over=over)) for over in ("target", "hook")]
    rig = th.attach(one, hooks, optimizer=optimizers)
    for both in (True, False, True):
        for optimizer in optimizers:
            optimizer.zero_grad()
        one(torch.ones(3, 4), both).square().sum().backward()
        for optimizer in optimizers:
            optimizer.step()
    assert {rig.ledger[hook.id].fired for hook in hooks} == {4}
    rig.detach()


def unused_on_one(rank: int) -> None:
    """Check that nothing is reported for a parameter that DDP fills, although this rank does not use it."""
    import warnings

    torch.manual_seed(0)
    one = Branches()
    spread = nn.parallel.DistributedDataParallel(one, find_unused_parameters=True)
    optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
    hooks = [th.Hook("g", on="**", at="grad", do=th.stats()), th.Hook("o", on="b", at="output", do=th.scale(1.0))]
    rig = th.attach(one, hooks, optimizer=optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            optimizer.zero_grad()
            spread(torch.ones(2, 4), rank == 0).sum().backward()
            optimizer.step()
    assert not rig.imbalances, rig.imbalances
    rig.detach()


PROGRAMS: dict[str, Callable[[int], None]] = {
    "absent": absent,
    "another plan": another_plan,
    "a missing hook": a_missing_hook,
    "other code": other_code,
    "refused on one": refused_on_one,
    "changes": changes,
    "a muted site": a_muted_site,
    "flat parameters": flat_parameters,
    "summands": summands,
    "no effect": no_effect,
    "one by one": one_by_one,
    "noises": noises,
    "zero bubble": zero_bubble,
    "forward": failing("output", "0"),
    "a module's gradient": failing("grad_output", "0"),
    "backward": failing("grad", "0.weight"),
    "accumulated": failing("grad_accumulated", "0.weight"),
    "final": failing("grad_final", "0.weight"),
    "after the step": failing_after_the_step,
    "in a save": failing_in_a_save,
    "leaving": leaving(model, CLIP),
    "leaving a sharded model": leaving(sharded, CLIP),
    "an observer leaves": leaving(sharded, STATS),
    "skipping": skipping,
    "other steps": other_steps,
    "at other steps": at_other_steps,
    "muted alone": muted_alone,
    "uneven batches": uneven_batches,
    "saving": saving,
    "replicas beside shards": replicas_beside_shards,
    "a trigger on one": a_trigger_on_one,
    "no gradients": no_gradients,
    "unused on one": unused_on_one,
}


if __name__ == "__main__":
    run_programs(PROGRAMS)
