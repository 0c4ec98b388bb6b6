"""Train a small transformer with every kind of state that a checkpoint must contain.

A run advances part by part: arrange, evaluate, peek, micro-batch, abandon, update. It can be saved after each part, so
also in the middle of a step.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import tenterhook as th

VOCABULARY, LENGTH, DIM, BATCH = 17, 6, 8, 4
#: steps of the full run; a shorter run is its beginning
STEPS = 300

# -- the model and its data --------------------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.out = nn.Linear(DIM, DIM)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        probs = th.tap((q @ k.transpose(1, 2) / math.sqrt(DIM)).softmax(dim=-1), "probs", within=self)
        return self.out(self.dropout(probs) @ v)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.mlp = nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM), nn.Dropout(0.1))
        self.norms = nn.ModuleList(nn.LayerNorm(DIM) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, DIM)
        self.places = nn.Embedding(LENGTH, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, VOCABULARY)

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x) + self.places(torch.arange(LENGTH))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


class Loader:
    """Yield shuffled batches without end. The loader has its own generator and position."""

    def __init__(self, seed: int) -> None:
        self._data = torch.randint(VOCABULARY, (24, LENGTH + 1), generator=torch.Generator().manual_seed(0))
        self._generator = torch.Generator().manual_seed(seed)
        self._shuffle()

    def _shuffle(self) -> None:
        self._order, self._at = torch.randperm(len(self._data), generator=self._generator), 0

    def __next__(self) -> Tensor:
        if self._at == len(self._order):
            self._shuffle()
        batch = self._data[self._order[self._at : self._at + BATCH]]
        self._at += BATCH
        return batch

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self._generator.get_state(), "order": self._order, "at": self._at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._generator.set_state(state["generator"])
        self._order, self._at = state["order"], state["at"]


# -- the hooks: every kind of state, and every reason not to be due ----------------------------------------------------

ACTIONS = th.Registry()


@th.action("average", registry=ACTIONS, at="grad", modifies=True)
def average(grad: Tensor, ctx: th.Context, *, alpha: float = 0.8) -> Tensor:
    """Keep free state at a backward point: the running mean of the gradient."""
    before = ctx.state.get("mean")
    ctx.state["mean"] = grad if before is None else alpha * before + (1 - alpha) * grad
    return ctx.state["mean"]


@th.action("level", registry=ACTIONS, at="output", modifies=True, state={"mean": 0.0})
def level(x: Tensor, ctx: th.Context, *, alpha: float = 0.8) -> Tensor:
    """Keep declared state at a forward point: the running mean of the output."""
    mean = ctx.state["mean"]
    ctx.state["mean"] = alpha * mean + (1 - alpha) * x.detach().mean()
    return x - mean.to(x.dtype)


@th.action("center", registry=ACTIONS, at="output", modifies=True)
def center(x: Tensor, ctx: th.Context, *, alpha: float = 0.8) -> Tensor:
    """Keep free state at a forward point: the running mean of each feature."""
    now = x.detach().flatten(0, -2).mean(dim=0)
    mean = ctx.state.get("mean", torch.zeros_like(now))
    ctx.state["mean"] = alpha * mean + (1 - alpha) * now
    return x - mean


@th.action("brittle", registry=ACTIONS, at="grad_final", state={"seen": 0.0})
def brittle(grad: Tensor, ctx: th.Context, *, until: int) -> None:
    """Raise at the step `until` on biases, where the hook is muted from then on."""
    if ctx.step == until and ctx.target.endswith("bias"):
        raise ValueError("meant to fail")
    ctx.state["seen"] = ctx.state["seen"] + 1
    ctx.emit("seen", ctx.state["seen"])


DIRECTION = {"direction": torch.linspace(-1, 1, DIM)}

PLAN = th.Plan([
    th.Hook("noise", on="head.**", at="grad", do=th.noise(std=0.01, seed=3)),
    th.Hook("average", on="blocks.*.attention.**", at="grad", do=average()),
    th.Hook("damp", on="tokens.weight", at="grad", do=th.scale(by=0.5)),
    th.Hook("window", on="norm.**", at="grad", do=th.clip_value(0.01), when=th.When(start=3, stop=9, every=2)),
    th.Hook("grads", on="**.weight", at="grad", do=th.stats()),
    th.Hook("jitter", on="blocks.*.mlp", at="output", do=th.noise(std=0.05), when=th.When(every=3)),
    th.Hook("steer", on="blocks.1", at="output", do=th.steer(by="direction", scale=0.1)),
    th.Hook("level", on="blocks.*", at="output", do=level()),
    th.Hook("center", on="norm", at="output", do=center()),
    th.Hook("level_eval", on="blocks.*.mlp", at="output", do=level(), when=th.When(phase="eval")),
    th.Hook("center_eval", on="blocks.*.attention", at="output", do=center(), when=th.When(phase="eval")),
    th.Hook("outputs", on="blocks.*", at="output", do=th.stats(), when=th.When(phase="any")),
    th.Hook("probs", on="**:probs", at="value", do=th.histogram(), when=th.When(phase="any")),
    th.Hook("probs_grad", on="**:probs", at="value_grad", do=th.clip_zscore(z=0.5, warmup=2)),
    th.Hook("spike", on="tokens.weight", at="grad_final", do=th.spike(z=1.0, warmup=2)),
    th.Hook("zscore", on="**", at="grad_final", do=th.clip_zscore(z=0.5, warmup=2)),
    th.Hook("calm", on="blocks.**", at="grad_final", do=th.scale(by=0.5), when=th.When(after_trip=2)),
    th.Hook("brittle", on=["norm.**", "head.**"], at="grad_final", do=brittle(until=3)),
    th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(0.5, over="hook")),
])  # fmt: skip


# -- the run -----------------------------------------------------------------------------------------------------------


def parts(step: int) -> list[str]:
    """Return the parts of a step: two micro-batches, and in some steps evaluations and an abandoned backward before."""
    evaluated = (["evaluate", "evaluate", "peek"], [], ["evaluate"])[step % 3]
    thrown_away = ["micro", "abandon"] if step % 4 == 2 else []
    return ["arrange", *evaluated, *thrown_away, "micro", "micro", "update"]


class Run:
    """Train from step 0. A run has no rig until `attach` or `restore` is called."""

    rig: th.Rig

    def __init__(self, *, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.model = Transformer()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.02)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=STEPS)
        self.loader = Loader(seed)
        self.step, self.part, self.loss, self.frozen = 0, 0, 0.0, False
        #: a digest of all values that the sinks have received
        self._told = ""

    def attach(self) -> th.Rig:
        self.rig = th.attach(
            self.model, PLAN, optimizer=self.optimizer, tensors=DIRECTION, sinks=self._tell, actions=ACTIONS
        )
        return self.rig

    def restore(self, hooks: Mapping[str, Tensor], **options: Any) -> th.Rig:
        self.rig = th.restore(self.model, hooks, optimizer=self.optimizer, sinks=self._tell, actions=ACTIONS, **options)
        return self.rig

    @property
    def told(self) -> str:
        assert self.rig.flush(60.0)
        return self._told

    @told.setter
    def told(self, told: str) -> None:
        self._told = told

    def _tell(self, values: dict[str, Any], step: int) -> None:
        # Rows that were emitted before a save in the middle of a step are not saved.
        kept = sorted((key, value) for key, value in values.items() if "/change" not in key)
        self._told = hashlib.sha256(repr((self._told, step, kept)).encode()).hexdigest()

    # -- training --

    def advance(self) -> None:
        """Run one part."""
        getattr(self, f"_{self.next}")()
        self.part += 1
        if self.part == len(parts(self.step)):
            self.step, self.part = self.step + 1, 0

    def advance_step(self) -> None:
        self.advance()
        while self.part:
            self.advance()

    @property
    def next(self) -> str:
        return parts(self.step)[self.part]

    @property
    def last(self) -> str:
        return parts(self.step)[self.part - 1]

    def _arrange(self) -> None:
        """Change the rig and the model, as a program does during training."""
        if self.step % 8 == 3:
            self.rig.mute("damp")
        if self.step % 8 == 6:
            self.rig.unmute("damp")
        self._freeze(self.step % 7 >= 4)

    def _freeze(self, frozen: bool) -> None:
        self.frozen = frozen
        self.model.places.requires_grad_(not frozen)

    def _loss(self) -> Tensor:
        batch = next(self.loader)
        return cross_entropy(self.model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())

    def _evaluate(self) -> None:
        self.model.eval()
        with torch.no_grad():
            self.loss = self._loss().item()
        self.model.train()

    def _peek(self) -> None:
        """Call a part of the model without its root."""
        self.model.eval()
        self.loss = self.model.blocks[0].mlp(torch.ones(1, DIM)).sum().item()
        self.model.train()

    def _micro(self) -> None:
        loss = self._loss()
        loss.backward()
        self.loss = loss.item()

    def _abandon(self) -> None:
        self.optimizer.zero_grad()

    def _update(self) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "tenterhook muted a hook at one target", RuntimeWarning)
            self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()

    # -- saving --

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the run without the hooks."""
        return {
            "model": self.model.state_dict(),
            "gradients": {name: p.grad for name, p in self.model.named_parameters() if p.grad is not None},
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "loader": self.loader.state_dict(),
            "progress": {name: getattr(self, name) for name in ("step", "part", "loss", "frozen", "told")},
            "rng": torch.get_rng_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the given components. The caller loads the hooks after them, and the random state last."""
        for name in ("model", "optimizer", "scheduler", "loader"):
            if name in state:
                getattr(self, name).load_state_dict(state[name])
        parameters = dict(self.model.named_parameters())
        for name, gradient in state.get("gradients", {}).items():
            parameters[name].grad = gradient
        for name, value in state["progress"].items():
            setattr(self, name, value)
        self._freeze(self.frozen)

    def bits(self) -> dict[str, tuple[str, bytes]]:
        """Return the bytes of the whole state, by name."""
        return dict(_bits({**self.state_dict(), "hooks": self.rig.state_dict()}))

    def digest(self) -> str:
        """Return a digest of the whole state, in an order that depends only on the names."""
        return hashlib.sha256(repr(sorted(self.bits().items())).encode()).hexdigest()


def _bits(tree: Any, path: str = "") -> Iterator[tuple[str, tuple[str, bytes]]]:
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _bits(value, f"{path}/{key}" if path else str(key))
    elif isinstance(tree, list | tuple):
        for i, value in enumerate(tree):
            yield from _bits(value, f"{path}/{i}")
    elif isinstance(tree, Tensor):
        raw = tree.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        yield path, (f"{tree.dtype}{list(tree.shape)}", raw)
    else:
        yield path, (type(tree).__name__, repr(tree).encode())


def differences(a: Mapping[str, tuple[str, bytes]], b: Mapping[str, tuple[str, bytes]]) -> list[str]:
    """Return the names of all values that are not equal bit for bit."""
    return sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))
