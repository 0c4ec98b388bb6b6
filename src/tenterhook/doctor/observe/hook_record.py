"""Record one raw hook: where it was registered, on which object, and what happened when it fired."""

from __future__ import annotations

import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, NamedTuple

from torch import Tensor

from tenterhook import torch_internals as private
from tenterhook.doctor.observe.circumstances import Circumstances
from tenterhook.doctor.observe.distribution import Distribution
from tenterhook.doctor.observe.firing_sample import FiringSample
from tenterhook.doctor.observe.hook_kinds import BACKWARD, FORWARD, STEP, TENSOR
from tenterhook.doctor.observe.hook_owner import HookLabel, Owner
from tenterhook.doctor.observe.model_index import Caller, Place
from tenterhook.doctor.observe.timeline import Moment, Timeline
from tenterhook.doctor.observe.usage import Calls, MissedBackward
from tenterhook.doctor.observe.values.derived import Derived
from tenterhook.doctor.observe.values.late_variables import LateVariables, outer_values
from tenterhook.doctor.observe.values.returned import Returned
from tenterhook.doctor.observe.values.stored import Stored, weak
from tenterhook.doctor.observe.values.variables import Variable
from tenterhook.doctor.reading.bytecode import Reading, read, text_of
from tenterhook.doctor.reading.functions import bare, held, holder_of, methods_of, misfit
from tenterhook.doctor.reading.hook_code import HookCode
from tenterhook.plan import callable_name

#: for each hook, the maximum number of firings to compare and the maximum number of kept tensors to track
SAMPLES = 4


class HeldGradient(NamedTuple):
    """A gradient that a hook has seen after its accumulation, with its users before the call and its version after."""

    record: HookRecord
    gradient: weakref.ref[Tensor]
    users: tuple[int, int]
    version: int


@dataclass(slots=True)
class FiringLog:
    """The hooks that have fired since the last step, and the hooks that have not fired yet."""

    #: the `number` of each hook that has fired since the last step
    since_step: set[int] = field(default_factory=set)
    #: hooks that have not fired yet, by `number`; later backward passes may show why
    waiting: dict[int, HookRecord] = field(default_factory=dict)
    #: gradients that a hook may have kept in the running backward pass
    held: list[HeldGradient] = field(default_factory=list)

    def look_at_held(self) -> None:
        """Find the gradients to which a hook kept a reference. Call this when the backward pass has ended."""
        after: dict[int, tuple[int, int]] = {}
        for record, ref, before, version in reversed(self.held):
            grad = ref()
            if grad is not None:
                now = after.get(id(grad)) or users_of(grad)
                after[id(grad)] = before  # the hook that saw the gradient before this one had ended by then
                if now[0] > before[0] or now[1] > before[1]:
                    record.aliased.append((ref, version))
        self.held.clear()


@dataclass(slots=True, eq=False)
class HookRecord(HookCode):
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
    #: the id of the function, and a number that equal code has; a cell of a notebook is compiled each time it runs
    identity: tuple[int, int]
    #: the ids of the objects in its closure, defaults and bound arguments; functions with the same ones do the same
    cells: tuple[int, ...]
    timeline: Timeline
    firings: FiringLog
    distribution: Distribution
    label: HookLabel
    #: the code object of the plain function inside a partial, a method or a callable object
    code: CodeType | None = None
    #: the code of the methods of its object that it calls
    helpers: tuple[CodeType, ...] = ()
    #: returns the function as long as it exists
    fn: Callable[[], Any] = lambda: None
    #: how many arguments PyTorch passes to the function, or None if this is not known
    passed: int | None = None
    #: why the function cannot be called with these arguments, or None
    misfit: str | None = None
    #: the thread that registered the hook
    thread: int = field(default_factory=threading.get_ident)
    handle: Any = None
    #: the name of the closure variable or default argument that refers to the hooked tensor
    holder: str | None = None
    #: True if the function refers to such objects, so another function with the same code may behave differently
    bound: bool = False
    #: True if the registration overwrote another hook with the same handle id
    overwrote: bool = False
    removed: Moment | None = None
    #: calls of `remove` of the handle after the hook was removed, and after passes without it
    removed_again: int = 0

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
    #: the time of the last firing
    last: Moment | None = None
    returned: int = 0
    changed: int = 0
    in_place: int = 0
    raised: str | None = None
    samples: list[FiringSample] = field(default_factory=list)
    #: firings while a checkpoint recomputed the forward pass
    recomputed: int = 0
    #: sums of the first outputs that a forward hook returned
    sums: set[float] = field(default_factory=set)
    #: for the first recomputations: True if the hook returned another output than before
    recomputed_differently: list[bool] = field(default_factory=list)
    #: firings in which the gradient was not finite and the hook returned None
    unguarded: int = 0
    #: the loss scale in the last firing
    scaled_by: float = 1.0
    #: firings in which the gradient was None
    nones: int = 0
    #: firings in which the gradients of all inputs were None
    without_input: int = 0
    #: firings in which a backward hook received no gradient of an input, because all inputs were keyword arguments
    empty_inputs: int = 0
    #: firings in which the leaf already had a nonzero .grad, so the new gradient was added to it
    accumulating: int = 0
    #: accumulating firings since .grad was last zero or None, and accumulating firings included in a step
    adding: int = 0
    summed: int = 0
    #: firings after the hook was removed
    late_firings: int = 0
    #: calls in which `torch.fx` or `torch.jit` traced the model
    traced: int = 0
    #: firings on a copy of the owner
    copies_fired: int = 0
    most_in_backward: int = 0
    #: the places in the code that started these backward passes
    backward_places: set[str] = field(default_factory=set)
    #: the number of calls of other models of this class, without hooks, before the last firing
    others_then: int = 0
    #: the values of create_graph in the backward passes in which the hook fired
    graphs: set[bool] = field(default_factory=set)
    #: True if the tensor was modified in place between the registration and a firing
    rebased: bool = False
    #: tensors that the hook received and may have kept, each with the time at which the hook received it
    kept: list[tuple[Moment, weakref.ref[Tensor]]] = field(default_factory=list)
    #: gradients to which the hook kept a reference, each with its version counter at that time
    aliased: list[tuple[weakref.ref[Tensor], int]] = field(default_factory=list)

    #: the values that the hook stored
    stored: list[Stored] = field(default_factory=list)
    #: the names of keyword arguments of the module that the hook did not receive
    lacks_kwargs: set[str] = field(default_factory=set)
    #: the circumstances in which a forward hook fired
    circumstances: Circumstances = field(default_factory=Circumstances)
    #: the outer variables that the hook reads
    late: LateVariables = field(default_factory=LateVariables)
    #: the variables that refer to the containers of the hook
    variables: list[Variable] = field(default_factory=list)
    #: the number of samples in a batch whose loss is a mean, if the hook treats the samples of its gradient one by one
    mean_over: int = 0
    #: the attributes of the module that a pre-hook computes before each call
    derived: Derived = field(default_factory=Derived)
    #: backward passes of a loss with a term without a graph, after the hook stored a value without its graph
    constant_terms: int = 0
    #: backward passes after the hook stored a value without its graph: those that reached a parameter of the hooked
    #: module, and those that reached none
    reached_terms: int = 0
    cut_terms: int = 0
    #: backward passes that used the part of the output that the hook changed, and those that used only other parts
    parts: tuple[int, int] = (0, 0)
    #: what the hook returned
    returns: Returned = field(default_factory=Returned)
    #: the prefix of the keys that a state-dict hook was given
    prefix: str = ""
    #: True if a key of the state dict contains a text in the code of the hook
    names_keys: bool = False
    #: what a forward hook changed in an output that already contained the loss
    after_loss: str | None = None
    #: firings in which a forward hook changed a part of a larger tensor of the program in place
    data_changed: int = 0
    #: the number of operations that use the hooked tensor, if it is not a leaf
    consumers: int = 0
    #: the names of the hooked parameter in its model
    names: tuple[str, ...] = ()
    #: steps with a closure, for a hook before the step
    before_closure: int = 0
    #: firings of a step hook in a call of `step` inside another one of the same optimizer
    nested_steps: int = 0
    #: the class of the module that took the name of the hooked module and contains it, or None
    wrapped_by: str | None = None
    #: the class of a second model that contains the hooked module, or None
    other_model: str | None = None
    #: what traced the model while the hook was called: `torch.export`, `torch.jit` or `torch.fx`
    traced_by: str | None = None
    #: by name: calls of a method of the hooked module that `forward` also calls, while the module was not called
    bypassed: dict[str, int] = field(default_factory=dict)
    #: firings of a forward hook before the trace
    fired_before_trace: int = 0
    #: the type of the device of the first tensor that the hook was given
    device: str = "cpu"
    #: True if the output that a forward hook was given is a tensor with several samples
    tensor_output: bool = False
    #: firings in which a forward hook changed the output in place
    output_changed: int = 0
    #: firings in which a forward hook changed an output in place that shares its memory with the input
    input_changed: int = 0
    #: firings in which a forward pre-hook changed parameters of its module
    weights_changed: int = 0
    #: the numbers of steps after which it did
    weights_changed_after: set[int] = field(default_factory=set)
    #: firings in which a hook stored a number that is not finite, although the values that it received are finite
    overflowed: int = 0
    #: the type of a 16-bit number to which the hook adds, or None
    adds_in: str | None = None

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
    in_backward: tuple[int, int] = (-1, 0)

    # -- properties --------------------------------------------------------------------------------------------------

    @property
    def activity(self) -> tuple[int, ...]:
        """Return numbers that increase when the hook is called or removed, or could have been called."""
        return (
            self.fired,
            self.copies_fired,
            self.traced,
            len(self.missed_backwards),
            self.reached,
            int(self.removed is not None),
        )

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

    @property
    def keeps_copies(self) -> bool:
        """Return True if none of the values that the hook stored keeps a tensor or a graph of the model alive."""
        return bool(self.stored) and all(one.tensor is None and not one.graph for one in self.stored)

    @property
    def handle_is_lost(self) -> bool:
        """Return True if the program no longer has the handle, so that it cannot remove the hook."""
        return self.handle is not None and sys.getrefcount(self.handle) <= 2

    @property
    def gets_kwargs(self) -> bool:
        """Return True if PyTorch passes the keyword arguments of the module to this forward hook."""
        return self.kind in FORWARD and self.passed != 2 + FORWARD.index(self.kind)

    def note_terms(self, constant: bool, leaves: Collection[int]) -> None:
        """Record what the graph of a loss looks like after the hook has stored a value without its graph.

        Args:
            constant: True if the loss is a sum with a term that has no graph.
            leaves: The ids of the parameters that the graph reaches.
        """
        self.constant_terms += constant
        module = self.owner.place.module() if self.owner.place is not None else None
        own = [id(one) for one in module.parameters() if one.requires_grad] if module is not None else []
        if own:
            reached = any(one in leaves for one in own)
            self.reached_terms, self.cut_terms = self.reached_terms + reached, self.cut_terms + (not reached)

    def note_part(self, used: bool) -> None:
        """Record whether a backward pass used the part of the output that the hook changed."""
        self.parts = self.parts[0] + used, self.parts[1] + (not used)

    @property
    def prefix_index(self) -> int:
        """Return which argument of a state-dict hook is the prefix. The state dict is the one before."""
        names = self.reading.arguments if self.reading is not None else ()
        # A private hook before loading takes seven arguments, and an eighth, the module in front, only if asked.
        with_module = self.kind != private.STATE_REGISTRARS[1] or len(names) > 7
        return 2 if with_module else 1

    @property
    def ignores_prefix(self) -> bool:
        """Return True if the code of a state-dict hook does not read the prefix of the keys."""
        return self.reads_argument(self.prefix_index) is False

    def passed_of(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments that PyTorch passed, without those that have their defaults."""
        return arguments[: self.passed]


def users_of(tensor: Tensor) -> tuple[int, int]:
    """Return how many references to a tensor and how many users of its memory there are."""
    return sys.getrefcount(tensor), private.memory_users(tensor)


def count_passed(kind: str, *, with_kwargs: bool) -> int | None:
    """Return how many arguments PyTorch passes to a hook, or None if this is not known."""
    if kind in FORWARD:
        return 2 + FORWARD.index(kind) + with_kwargs
    if kind in BACKWARD:
        return 3 if BACKWARD.index(kind) else 2
    return 1 if kind in TENSOR else 3 if kind in STEP else None


_serials = itertools.count()


def new_record(
    fn: Callable[..., Any],
    kind: str,
    target: Any,
    place: Place | None,
    caller: Caller,
    *,
    timeline: Timeline,
    firings: FiringLog,
    distribution: Distribution,
    passed: int | None,
) -> HookRecord:
    """Create the record of a hook that is about to be registered on `target`. PyTorch passes `passed` arguments."""
    owner = Owner(target, place, distribution.group(target, place))
    function, code = callable_name(fn), getattr(bare(fn), "__code__", None)
    own = [value for _, value in held(fn)]
    record = HookRecord(
        number=-1,
        serial=next(_serials),
        kind=kind,
        function=function,
        caller=caller,
        owner=owner,
        born=timeline.now(),
        reading=read(fn),
        identity=(id(fn), text_of(code) if code else 0),
        cells=tuple(map(id, own)),
        timeline=timeline,
        firings=firings,
        distribution=distribution,
        label=HookLabel(function, owner.name, kind),
        code=code,
        helpers=methods_of(fn),
        fn=weak(fn),
        passed=passed,
        misfit=misfit(fn, passed),
        bound=bool(own),
        late=LateVariables(outer_values(fn)),
    )
    if isinstance(target, Tensor) and not target.is_leaf:
        record.holder = holder_of(fn, target)
    return record
