"""Compares plain PyTorch with tenterhook on P5 and P6: the state of a hook across a restart."""

import copy
import io
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import tenterhook as th

X = torch.arange(8.0).reshape(4, 2)
State = dict[str, Tensor]


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))


def run(model: nn.Module, by: float = 1.0) -> None:
    model.zero_grad()
    model(X * by).sum().backward()


def through_torch(saved: Any) -> Any:
    file = io.BytesIO()
    torch.save(saved, file)
    file.seek(0)
    return torch.load(file)


# -- P5: running state continues ---------------------------------------------------------------------------------------


class Training:
    """Trains with everything that affects the bits of a run: dropout, scheduler, shuffled loader, a stateful clip."""

    PLAN = th.Plan([
        th.Hook("clip", on="**", at="grad_final", do=th.clip_zscore(z=0.5, warmup=2)),
        th.Hook("noise", on="0.weight", at="grad", do=th.noise(std=0.01)),
        th.Hook("spike", on="3.weight", at="grad_final", do=th.spike(z=0.5, warmup=2)),
        th.Hook("damp", on="3.*", at="grad_final", do=th.scale(0.5), when=th.When(after_trip=2)),
        th.Hook("third", on="0", at="output", do=th.scale(1.5), when=th.When(every=3)),
    ])  # fmt: skip

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 20)
        data = torch.randn(20, 2, generator=torch.Generator().manual_seed(1))
        self.loader = DataLoader(TensorDataset(data, data.sum(1, keepdim=True)), batch_size=4, shuffle=True)
        self.begin_epoch()

    def begin_epoch(self) -> None:
        self.seed, self.taken = torch.get_rng_state(), 0
        self.batches = iter(self.loader)

    def train(self, steps: int) -> "Training":
        for _ in range(steps):
            if self.taken == len(self.loader):
                self.begin_epoch()
            x, y = next(self.batches)
            self.taken += 1
            self.optimizer.zero_grad()
            (self.model(x) - y).square().mean().backward()
            self.optimizer.step()
            self.scheduler.step()
        return self

    def save(self, rig: th.Rig | None) -> dict[str, Any]:
        parts = {name: getattr(self, name).state_dict() for name in ("model", "optimizer", "scheduler")}
        loader = {"seed": self.seed, "taken": self.taken}
        hooks = rig.state_dict() if rig is not None else {}
        return through_torch({**parts, "loader": loader, "hooks": hooks, "rng": torch.get_rng_state()})

    def load(self, saved: dict[str, Any], *, hooks: bool = True, rng_last: bool = True) -> "Training":
        """Load in the order of the docs: model, optimizer, scheduler, loader and iterator, hooks, generators."""
        saved = copy.deepcopy(saved)  # an optimizer keeps and changes the loaded tensors themselves
        if not rng_last:
            torch.set_rng_state(saved["rng"])
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.scheduler.load_state_dict(saved["scheduler"])
        if rng_last:
            torch.set_rng_state(saved["loader"]["seed"])
        self.begin_epoch()
        for _ in range(saved["loader"]["taken"]):
            next(self.batches)
            self.taken += 1
        if hooks:
            th.restore(self.model, saved["hooks"], optimizer=self.optimizer)
        else:
            th.attach(self.model, self.PLAN, optimizer=self.optimizer)
        if rng_last:
            torch.set_rng_state(saved["rng"])
        return self

    def weights(self) -> Tensor:
        return torch.cat([p.detach().flatten() for p in self.model.parameters()])


@pytest.fixture(scope="module")
def stopped() -> tuple[dict[str, Any], Tensor]:
    """Return a checkpoint from the middle of an epoch, and the result of the run that was not stopped."""
    run = Training()
    rig = th.attach(run.model, run.PLAN, optimizer=run.optimizer)
    saved = run.train(7).save(rig)
    return saved, run.train(9).weights()


def test_p5_the_running_mean_of_a_closure_starts_again() -> None:
    def train(model: nn.Module, steps: range, mean: dict[str, float]) -> None:
        def clip(grad: Tensor) -> Tensor:
            norm = float(grad.norm())
            mean["norm"] = 0.9 * mean.get("norm", norm) + 0.1 * norm
            return grad * min(1.0, mean["norm"] / norm)

        handle = model[0].weight.register_hook(clip)
        for step in steps:
            run(model, step + 1)
        handle.remove()

    straight, resumed = net(), net()
    train(straight, range(6), {})
    train(resumed, range(4), {})
    train(resumed, range(4, 6), {})
    assert not torch.equal(straight[0].weight.grad, resumed[0].weight.grad)


def test_p5_the_same_bits_as_the_run_that_was_never_stopped(stopped: tuple[dict[str, Any], Tensor]) -> None:
    saved, straight = stopped
    resumed = Training().load(saved).train(9)
    assert torch.equal(resumed.weights(), straight)


def test_p5_without_the_hooks_state_or_with_the_generators_first_it_is_another_run(
    stopped: tuple[dict[str, Any], Tensor],
) -> None:
    saved, straight = stopped
    assert not torch.equal(Training().load(saved, hooks=False).train(9).weights(), straight)
    assert not torch.equal(Training().load(saved, rng_last=False).train(9).weights(), straight)


def through_safetensors(state: State, folder: Path) -> State:
    safetensors.torch.save_file(state, folder / "hooks.safetensors")
    return safetensors.torch.load_file(folder / "hooks.safetensors")


def through_dcp(state: State, folder: Path) -> State:
    dcp.save({"hooks": state}, checkpoint_id=folder)
    read = th.DcpState(folder)
    dcp.load({"hooks": read}, checkpoint_id=folder)
    return read.state_dict()


def through_dcp_and_safetensors(state: State, folder: Path) -> State:
    dcp.save({"hooks": state}, storage_writer=dcp.HuggingFaceStorageWriter(str(folder)))
    assert not (folder / ".metadata").exists()
    read = th.DcpState(dcp.HuggingFaceStorageReader(str(folder)))
    dcp.load({"hooks": read}, storage_reader=dcp.HuggingFaceStorageReader(str(folder)))
    return read.state_dict()


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("through", [through_safetensors, through_dcp, through_dcp_and_safetensors])
def test_p5_every_container_brings_it_back_unchanged(
    stopped: tuple[dict[str, Any], Tensor], through: Callable[[State, Path], State], tmp_path: Path
) -> None:
    saved, straight = stopped
    back = through(saved["hooks"], tmp_path)
    assert back.keys() == saved["hooks"].keys()
    assert all(torch.equal(back[key], value) for key, value in saved["hooks"].items())
    assert torch.equal(Training().load({**saved, "hooks": back}).train(9).weights(), straight)


# -- P6: the function changed ------------------------------------------------------------------------------------------


def smooth(grad: Tensor, ctx: th.Context) -> Tensor:
    ctx.state["mean"] = 0.5 * ctx.state.get("mean", grad) + 0.5 * grad
    return ctx.state["mean"]


def smooth_with_remarks(grad: Tensor, ctx: th.Context) -> Tensor:
    # other line numbers, the same code

    ctx.state["mean"] = 0.5 * ctx.state.get("mean", grad) + 0.5 * grad  # as before
    return ctx.state["mean"]


def smooth_otherwise(grad: Tensor, ctx: th.Context) -> Tensor:
    ctx.state["mean"] = 0.25 * ctx.state.get("mean", grad) + 0.75 * grad
    return ctx.state["mean"]


def program(fn: Callable[..., Tensor], version: int = 1) -> th.Registry:
    """Return a registry with the actions of one program."""
    actions = th.Registry()
    th.action("smooth", registry=actions, at="grad", modifies=True, version=version)(fn)
    return actions


def state_of(actions: th.Registry) -> State:
    model = net()
    hook = th.Hook("own", on="0.weight", at="grad", do=th.Action("smooth"))
    with th.attach(model, [hook], actions=actions) as rig:
        run(model)
        return rig.state_dict()


def double(grad: Tensor) -> Tensor:
    return grad * 2


def test_p6_a_pickled_function_is_silently_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    saved = pickle.dumps(double)
    monkeypatch.setattr(sys.modules[__name__], "double", lambda grad: grad * 3)
    assert pickle.loads(saved)(torch.ones(())) == 3


@pytest.mark.parametrize(
    ("actions", "fact"),
    [
        (program(smooth_otherwise), "the code of 'smooth' has changed since the state was saved"),
        (program(smooth, version=2), "saved with version 1 of 'smooth', which is older than this version, 2"),
        (th.Registry(), "the action 'smooth' is not registered"),
    ],
    ids=["code", "version", "gone"],
)
def test_p6_a_changed_function_is_reported(actions: th.Registry, fact: str) -> None:
    model = net()
    with pytest.raises(th.MismatchError) as told:
        th.restore(model, state_of(program(smooth)), actions=actions)
    (difference,) = told.value.report.differences
    assert (difference.kind, difference.hook) == ("action", "own")
    assert fact in difference.fact
    assert len(th.inventory(model)) == 0


def test_p6_the_same_code_in_other_lines_is_the_same() -> None:
    model = net()
    with th.restore(model, state_of(program(smooth)), actions=program(smooth_with_remarks)) as rig:
        assert rig.ledger["own"].fired == 1


def test_p6_a_changed_function_may_be_meant() -> None:
    model = net()
    with pytest.warns(RuntimeWarning, match="the code of 'smooth' has changed since"):
        rig = th.restore(model, state_of(program(smooth)), actions=program(smooth_otherwise), strict=False)
    assert rig.ledger["own"].fired == 1
