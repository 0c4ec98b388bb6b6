"""Record one raw hook: where it was registered, on which object, and what happened when it fired."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import torch
from torch import Tensor

from tenterhook import torch_internals as private
from tenterhook.doctor.observe.distribution import DDP, Distribution
from tenterhook.doctor.observe.firing_sample import FiringSample, comparable, is_plain, quotients, same, summary
from tenterhook.doctor.observe.hook_owner import HookLabel, Owner
from tenterhook.doctor.observe.model_index import Caller
from tenterhook.doctor.observe.source import Reading
from tenterhook.doctor.observe.timeline import Moment, Timeline

#: for each hook, the maximum number of firings to compare and the maximum number of kept tensors to track
SAMPLES = 4


TENSOR = ("register_hook", "register_post_accumulate_grad_hook")


FORWARD = ("register_forward_pre_hook", "register_forward_hook")


BACKWARD = ("register_full_backward_pre_hook", "register_full_backward_hook", "register_backward_hook")


#: the backward hooks for which PyTorch passes each output of the module to a setup function
FULL = BACKWARD[:2]


STEP = ("register_step_pre_hook", "register_step_post_hook")


@dataclass(slots=True)
class MissedBackward:
    """A backward pass in which a hook did not fire, and facts that may explain why."""

    #: how the program started the backward pass: `backward`, `backward(inputs=...)` or `autograd.grad`
    backward: str
    #: True if the hook's owner, or one of the owner's parameters, was in the graph
    inside: bool
    #: True if the owner still existed
    alive: bool = True
    frozen: bool = False
    replaced: bool = False
    #: True if FSDP2 or tensor parallelism replaced the parameter with a shard
    sharded: bool = False
    #: True if FSDP2 did not reduce gradients in this backward pass
    unsynced: bool = False
    #: True if parameters of the module were in the graph
    used: bool = False
    #: True if the forward pass ran before the hook was registered
    late: bool = False
    #: the class name of the hooked model, if another model of the same class ran instead
    other: str | None = None


@dataclass(slots=True)
class Calls:
    """The number of calls to one module, and facts that were observed in these calls."""

    count: int = 0
    without_grad: int = 0
    #: the class name of an output in which PyTorch finds no tensors for backward hooks
    odd: str | None = None

    def note(self, out: Any) -> None:
        self.count += 1
        if not torch.is_grad_enabled():
            self.without_grad += 1
        elif not isinstance(out, Tensor) and not (
            isinstance(out, tuple) and all(not isinstance(o, dict | list | tuple) for o in out)
        ):
            self.odd = type(out).__name__


@dataclass(slots=True)
class FiringLog:
    """The hooks that have fired since the last step, and the hooks that have not fired yet."""

    #: the `number` of each hook that has fired since the last step
    since_step: set[int] = field(default_factory=set)
    #: hooks that have not fired yet, by `number`; later backward passes may show why
    waiting: dict[int, HookRecord] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class HookRecord:
    """A raw hook, and everything that the exam has observed about the hook."""

    #: the index among the hooks of the exam
    number: int
    #: the index among all hooks that were watched in this process
    serial: int
    #: the PyTorch function that registered the hook
    kind: str
    function: str
    caller: Caller
    owner: Owner
    born: Moment
    reading: Reading | None
    #: the id of the function and the id of its code object
    identity: tuple[int, int]
    timeline: Timeline
    firings: FiringLog
    distribution: Distribution
    label: HookLabel
    #: the code object of the plain function inside a partial, a method or a callable object
    code: CodeType | None = None
    handle: Any = None
    #: the name of the closure variable or default argument that refers to the hooked tensor
    holder: str | None = None
    #: True if the function has a closure or defaults, so another function with the same code may behave differently
    bound: bool = False
    #: True if the registration overwrote another hook with the same handle id
    overwrote: bool = False
    removed: Moment | None = None

    #: how the owner is distributed over ranks
    spread: str | None = None
    #: the factors by which the first firing multiplied a sample of the gradient, before DDP reduced the gradient
    factors: Tensor | None = None
    #: firings whose factors differed from the factors of the first firing
    uneven: int = 0
    #: firings that set the gradient to None
    dropped: int = 0
    #: firings that changed the parameter, and a summary of the parameter after the first such firing
    drifted: int = 0
    drift: str = ""

    fired: int = 0
    returned: int = 0
    changed: int = 0
    in_place: int = 0
    raised: str | None = None
    samples: list[FiringSample] = field(default_factory=list)
    #: firings while a checkpoint recomputed the forward pass
    recomputed: int = 0
    #: firings in which the gradient was None
    nones: int = 0
    #: firings in which the gradients of all inputs were None
    without_input: int = 0
    #: firings in which the leaf already had a nonzero .grad, so the new gradient was added to it
    accumulating: int = 0
    #: accumulating firings since .grad was last zero or None, and accumulating firings included in a step
    adding: int = 0
    summed: int = 0
    #: firings after the hook was removed
    late_firings: int = 0
    #: firings on a copy of the owner
    copies_fired: int = 0
    most_in_backward: int = 0
    #: the values of create_graph in the backward passes in which the hook fired
    graphs: set[bool] = field(default_factory=set)
    #: True if the tensor was modified in place between the registration and a firing
    rebased: bool = False
    #: tensors that the hook received and may have kept, each with the time at which the hook received it
    kept: list[tuple[Moment, weakref.ref[Tensor]]] = field(default_factory=list)
    #: gradients to which the hook kept a reference, each with its version counter at that time
    aliased: list[tuple[weakref.ref[Tensor], int]] = field(default_factory=list)

    #: backward passes in which the hook did not fire
    missed_backwards: list[MissedBackward] = field(default_factory=list)
    #: the calls to the hooked module, or to the module that owns the hooked parameter; None if calls are not counted
    calls: Calls | None = None
    #: graph nodes of returned tensors that a checkpoint may recompute, each with the number of earlier backward passes
    checkpointed: dict[tuple[int, str], int] = field(default_factory=dict)
    #: recomputations that ran without the hook, although the original forward pass ran with it
    recomputed_without: int = 0

    #: steps of optimizers that update the parameter
    reached: int = 0
    #: steps of optimizers that do not update the parameter
    outside: int = 0
    #: steps before which the gradient was cleared
    cleared: int = 0
    optimizers: set[str] = field(default_factory=set)
    #: how far each step moved the elements whose gradients the hook had set to zero, and the cause
    moved: list[tuple[float, str]] = field(default_factory=list)
    #: the scale factor of each gradient-norm clip, and whether hooks had scaled all clipped gradients equally
    clipped: list[tuple[float, bool]] = field(default_factory=list)
    #: the number of the last backward pass in which the hook fired, and how often the hook fired in that pass
    _in_backward: tuple[int, int] = (-1, 0)

    # -- properties --------------------------------------------------------------------------------------------------

    @property
    def foreign(self) -> bool:
        """Return True if a library registered the hook, rather than the user's code."""
        return not self.caller.users

    @property
    def below(self) -> str:
        """Return a selector for the parameters of the hooked module."""
        return "*" if self.owner.name == "." else f"{self.owner.name}.*"

    @property
    def alive(self) -> bool:
        """Return True if the hook is still registered."""
        hooks = private.registered_in(self.handle)
        return hooks is not None and self.handle.id in hooks

    @property
    def taken_off(self) -> bool:
        """Return True if the owner still exists, but the hook was removed without using its handle."""
        there = not self.owner.replaced if self.owner.is_parameter else self.owner.now() is not None
        return self.removed is None and not self.alive and there

    @property
    def waits(self) -> bool:
        """Return True if a backward pass can show why a hook of this kind did not fire."""
        return self.kind in (*TENSOR, *FORWARD, *BACKWARD)

    # -- firing ------------------------------------------------------------------------------------------------------

    def fire(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the hook's function, record what it did, and return its result."""
        looking = len(self.samples) < SAMPLES and self.fired < 4 * SAMPLES
        if not self.fired:
            self.spread = self.distribution.kind(self.owner)
        if self.kind in TENSOR:
            fire = self._on_gradient if self.kind == TENSOR[0] else self._on_accumulated
            parameter = self.owner.now() if looking and self.spread == DDP else None
            if isinstance(parameter, Tensor):
                return self._on_replica(parameter, fire, fn, args, kwargs)
            return fire(fn, args, kwargs, looking)
        watched = self.kind in BACKWARD
        before = [(t, private.version(t)) for t in _tensors(args)] if watched else []
        if before and before[-1][0].requires_grad and len(self.kept) < SAMPLES:
            self.kept.append((self.timeline.now(), weakref.ref(before[-1][0])))
        out = self._call(fn, args, kwargs)
        if watched:
            self.in_place += any(private.version(t) != was for t, was in before)
            if self.kind == BACKWARD[1] and len(args) > 1 and isinstance(args[1], tuple):
                self.without_input += bool(args[1]) and all(g is None for g in args[1])
        if out is not None:
            self.returned += 1
            given = args[1] if watched and len(args) > 1 else None
            pair = next(
                (
                    (a, b)
                    for a, b in zip(_tuple(given), _tuple(out))
                    if isinstance(a, Tensor) and isinstance(b, Tensor) and a is not b
                ),
                None,
            )
            self.changed += 1 if pair is not None or not watched else 0
            if pair is not None and looking and comparable(*pair):
                with torch.no_grad():
                    self.samples.append(FiringSample.at(*pair, self.timeline))
        elif self.kind in FORWARD and len(self.kept) < SAMPLES:
            self._follow(args)
        if self.kind in FORWARD:
            self._see_checkpoint(out)
        return out

    def _on_replica(
        self, parameter: Tensor, fire: Callable[..., Any], fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Record how the hook changes a parameter and its gradient before DDP reduces the gradient."""
        accumulated = self.kind == TENSOR[1]
        value, given = parameter.detach().clone(), parameter.grad if accumulated else args[0]
        given = given.detach().clone() if given is not None and is_plain(given) else None
        out = fire(fn, args, kwargs, True)
        made = parameter.grad if accumulated else out
        with torch.no_grad():
            if not same(value, parameter.detach()):
                self.drifted, self.drift = self.drifted + 1, self.drift or summary(parameter)
            self.dropped += accumulated and given is not None and made is None
            if given is not None and made is not None and comparable(given, made):
                factors = quotients(made, given)
                self.uneven += self.factors is not None and not torch.allclose(factors, self.factors, equal_nan=True)
                self.factors = factors if self.factors is None else self.factors
        return out

    def _see_checkpoint(self, out: Any) -> None:
        if private.graph_task_id() != -1:
            self.recomputed += 1
            return
        made = next(_tensors((out,)), None)
        node = private.checkpointed(made) if made is not None else None
        if node is not None and len(self.checkpointed) < SAMPLES:
            self.checkpointed[node] = self.timeline.backwards

    def _on_gradient(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], looking: bool) -> Any:
        given = args[0] if args else None
        if not isinstance(given, Tensor):
            self.nones += 1
            return self._call(fn, args, kwargs)
        was = private.version(given)
        copy = given.detach().clone() if looking and comparable(given, given) else None
        if self.owner.leaf:
            leaf = self.owner.now() if looking else None
            held = leaf.grad if isinstance(leaf, Tensor) else None
            with torch.no_grad():
                adds = held is not None and is_plain(held) and bool(held.any())
            self.accumulating += adds
            self.adding = self.adding + 1 if adds else 0
        elif looking:
            tensor = self.owner.now()
            self.rebased |= isinstance(tensor, Tensor) and private.version(tensor) != self.owner.version
        if given.requires_grad and len(self.kept) < SAMPLES:
            self.kept.append((self.timeline.now(), weakref.ref(given)))
        out = self._call(fn, args, kwargs)
        now = private.version(given)
        with torch.no_grad():
            edited = copy is not None and was == now and not same(copy, given.detach())
        self.in_place += was != now or edited
        if isinstance(out, Tensor):
            self.returned += 1
            if out is not given:
                self.changed += 1
                if copy is not None and comparable(copy, out):
                    with torch.no_grad():
                        self.samples.append(FiringSample.at(copy, out, self.timeline))
        return out

    def _on_accumulated(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], looking: bool) -> Any:
        parameter = args[0]
        grad = parameter.grad
        self.nones += grad is None
        was = (id(grad), private.version(grad)) if grad is not None else None
        users = (sys.getrefcount(grad), private.memory_users(grad)) if looking and grad is not None else (0, 0)
        out = self._call(fn, args, kwargs)
        after = parameter.grad
        now = (id(after), private.version(after)) if after is not None else None
        self.returned += out is not None
        self.changed += now != was
        if looking and grad is not None and after is grad and now is not None:
            del after
            if sys.getrefcount(grad) > users[0] or private.memory_users(grad) > users[1]:
                self.aliased.append((weakref.ref(grad), now[1] or 0))
        return out

    def _call(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        timeline, distribution = self.timeline, self.distribution
        self.firings.since_step.add(self.number)
        outer, distribution.firing = distribution.firing, self.label
        try:
            out = fn(*args, **kwargs)
        except BaseException as error:
            self.raised = f"{type(error).__name__}: {error}"
            raise
        finally:
            distribution.firing = outer
        self.fired += 1
        if self.fired == 1:
            self.firings.waiting.pop(self.number, None)
        if self.removed is not None:
            self.late_firings += 1
        running = timeline.running  # read once: another thread may end its backward pass meanwhile
        if running is not None:
            number, count = self._in_backward
            count = count + 1 if number == timeline.backwards else 1
            self._in_backward = (timeline.backwards, count)
            self.most_in_backward = max(self.most_in_backward, count)
            self.graphs.add(running.create_graph)
        return out

    def _follow(self, args: tuple[Any, ...]) -> None:
        """Track the tensor that the hook received, to determine later whether the hook kept it alive."""
        shown = next((t for t in _tensors(args[-1:]) if t.requires_grad and t.grad_fn is not None), None)
        if shown is not None and torch.is_grad_enabled():
            self.kept.append((self.timeline.now(), weakref.ref(shown)))


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)
        elif isinstance(value, dict):
            yield from _tensors(value.values())
